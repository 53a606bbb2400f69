//go:build cluster

package cluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// controllersRights checks in the API server's audit log whether any request of the controller was
// refused: its role then misses a permission.
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
			ResponseStatus   struct{ Code int }
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
		asked++
		if e.ResponseStatus.Code == 403 {
			return fmt.Errorf("the controller may not %s %s: see deploy/kubernetes/rbac.yaml", e.Verb, e.RequestURI)
		}
	}
	if asked == 0 {
		return fmt.Errorf("no request of the controller in %s", suite.AuditLog())
	}
	return lines.Err()
}
