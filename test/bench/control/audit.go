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
	_ = os.WriteFile(policy, []byte(auditPolicy), 0o600) // the API server fails without it
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog(dir)}
}

// countRequests counts what the controller asked for in a namespace: all, and the
// writes, by the resource.
func countRequests(dir, ns string) (map[string]int, error) {
	f, err := os.Open(auditLog(dir))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	counts := map[string]int{}
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
		counts["all"]++
		if e.Verb != "get" && e.Verb != "list" {
			counts[e.ObjectRef.Resource]++
		}
	}
	return counts, lines.Err()
}
