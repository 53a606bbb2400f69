package control

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
)

// auditPolicy has the API server note each request, without what is in it.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules: [{level: Metadata}]
`

func auditLog(dir string) string { return filepath.Join(dir, "audit.log") }

// auditFlags are the API server's; the policy's file is written on the way.
func auditFlags(dir string) []string {
	policy := filepath.Join(dir, "audit.yaml")
	_ = os.WriteFile(policy, []byte(auditPolicy), 0o600) // the API server tells if it is not there
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog(dir)}
}

// countRequests counts what the controller asked for in a namespace, and of that
// the writes to instances.
func countRequests(dir, ns string) (requests, writes int, err error) {
	f, err := os.Open(auditLog(dir))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			UserAgent string
			Verb      string
			ObjectRef struct{ Resource, Namespace string }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the last line may be on its way
		}
		if !strings.HasPrefix(e.UserAgent, userAgent) || e.ObjectRef.Namespace != ns {
			continue
		}
		requests++
		if e.ObjectRef.Resource == "virtualmachineinstances" && e.Verb != "get" {
			writes++
		}
	}
	return requests, writes, lines.Err()
}
