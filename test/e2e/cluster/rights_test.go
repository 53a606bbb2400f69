//go:build cluster

package cluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// decision is the audit log's annotation with the answer of the authorizers: "allow" or "forbid". An
// answer 403 alone may also come from admission, for example for a resize beyond the node's size.
const decision = "authorization.k8s.io/decision"

// controllersRights checks in the API server's audit log whether the authorizers refused any request
// of the controller: its role then misses a permission.
func controllersRights() error {
	f, err := os.Open(suite.AuditLog())
	if err != nil {
		return err
	}
	defer f.Close()
	asked := 0
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct {
			Verb, RequestURI string
			User             struct{ Username string }
			Annotations      map[string]string
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			if !lines.Scan() && lines.Err() == nil {
				break // the last line, which is being written
			}
			return fmt.Errorf("read the audit log: %w", err)
		}
		if !strings.HasSuffix(e.User.Username, ":nodevirt-controller") {
			continue
		}
		switch e.Annotations[decision] {
		case "allow":
			asked++
		case "forbid":
			return fmt.Errorf("the controller may not %s %s: see deploy/kubernetes/rbac.yaml", e.Verb, e.RequestURI)
		}
	}
	if asked == 0 {
		return fmt.Errorf("no request that the controller may make in %s", suite.AuditLog())
	}
	return lines.Err()
}
