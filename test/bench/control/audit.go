package control

import (
	"bufio"
	"encoding/json"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// auditPolicy has the API server note each request without its content, and a watch when it starts.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, resources: [{group: coordination.k8s.io}, {resources: [nodes, nodes/status]}]}
- {level: Metadata, verbs: [watch], omitStages: [ResponseComplete]}
- {level: Metadata, omitStages: [ResponseStarted]}
`

const auditFile = "audit.log"

// auditFlags returns the API server's flags; the policy's file is written on the way.
func auditFlags(dir string) []string {
	policy := filepath.Join(dir, "audit.yaml")
	_ = os.WriteFile(policy, []byte(auditPolicy), 0o600) // the API server fails without it
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + filepath.Join(dir, auditFile)}
}

// audit is what the controller asked of the API server.
type audit struct {
	requests map[string]requests // by namespace
	watches  map[string]bool     // by path and selectors
}

// request is a verb and a resource.
type request struct{ verb, resource string }

// requests counts requests of a namespace.
type requests map[request]int

func (r requests) all() int {
	n := 0
	for _, count := range r {
		n += count
	}
	return n
}

// writes returns how many requests changed objects of a resource, subresources included.
func (r requests) writes(resource string) int {
	n := 0
	for q, count := range r {
		name, _, _ := strings.Cut(q.resource, "/")
		if name == resource && q.verb != "get" && q.verb != "list" {
			n += count
		}
	}
	return n
}

// readAudit reads the log, also the files that the API server has put aside as they were full.
func readAudit(dir string) (audit, error) {
	a := audit{map[string]requests{}, map[string]bool{}}
	base := strings.TrimSuffix(auditFile, filepath.Ext(auditFile))
	files, err := filepath.Glob(filepath.Join(dir, base+"*"+filepath.Ext(auditFile)))
	if err != nil {
		return a, err
	}
	for _, file := range files {
		if err := a.readFile(file); err != nil {
			return a, err
		}
	}
	return a, nil
}

func (a audit) readFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return a.read(f)
}

// read adds the controller's requests of a log.
func (a audit) read(log io.Reader) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			UserAgent, Verb, RequestURI string
			ObjectRef                   struct{ Resource, Subresource, Namespace string }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the last line may be on its way
		}
		if !strings.HasPrefix(e.UserAgent, userAgent) {
			continue
		}
		if e.Verb == "watch" {
			a.watches[watched(e.RequestURI)] = true
			continue
		}
		q := request{e.Verb, e.ObjectRef.Resource}
		if e.ObjectRef.Subresource != "" {
			q.resource += "/" + e.ObjectRef.Subresource
		}
		if a.requests[e.ObjectRef.Namespace] == nil {
			a.requests[e.ObjectRef.Namespace] = requests{}
		}
		a.requests[e.ObjectRef.Namespace][q]++
	}
	return lines.Err()
}

// watched returns a watch's path and selectors: a client that repeats a watch changes the rest.
func watched(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return uri
	}
	q := u.Query()
	return u.Path + "?" + url.Values{"labelSelector": q["labelSelector"], "fieldSelector": q["fieldSelector"]}.Encode()
}
