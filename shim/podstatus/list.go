package podstatus

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/nodevirt/nodevirt/shim/kubelet"
)

// maxPods bounds the pods of a node that are read. Kubernetes' own bound is 110 by default.
const maxPods = 10000

// Listed is a pod of the node as the API server has it.
type Listed struct {
	Pod
	Version string
}

// All returns the node's pods by their UIDs. It may be a little behind, since the API server's cache
// answers, and so costs it little. ok is false without a credential.
func (p *Lookup) All(ctx context.Context) (_ map[string]Listed, ok bool, _ error) {
	if p.api == nil {
		return nil, false, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	node, err := p.api.NodeName(ctx)
	if err != nil {
		return nil, false, err
	}
	var all map[string]Listed
	_, err = p.api.Do(ctx, kubelet.Request{
		Method: http.MethodGet, Path: []string{"api", "v1", "pods"}, Metadata: true, List: true,
		Query:  url.Values{"fieldSelector": {"spec.nodeName=" + node}, "resourceVersion": {"0"}}.Encode(),
		Decode: func(r io.Reader) (err error) { all, err = readPods(r); return err },
	})
	if err != nil {
		return nil, false, fmt.Errorf("list the node's pods: %w", err)
	}
	return all, true, nil
}

// readPods reads a list of objects one by one: their annotations, which are strangers' text, may be long.
func readPods(r io.Reader) (map[string]Listed, error) {
	d := json.NewDecoder(r)
	all, whole := map[string]Listed{}, false
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		if key != "items" {
			if err := d.Decode(new(json.RawMessage)); err != nil {
				return nil, err
			}
			continue
		}
		if open, err := d.Token(); err != nil || open != json.Delim('[') {
			return nil, fmt.Errorf("the list's items are no list: %w", err)
		}
		for d.More() {
			var one status
			if err := d.Decode(&one); err != nil {
				return nil, err
			}
			if len(all) == maxPods {
				return nil, fmt.Errorf("the node has more than %d pods", maxPods)
			}
			m := one.Metadata
			all[m.UID] = Listed{Pod: Pod{Namespace: m.Namespace, Name: m.Name, UID: m.UID}, Version: m.ResourceVersion}
		}
		if _, err := d.Token(); err != nil {
			return nil, err
		}
		whole = true
	}
	if !whole {
		return nil, fmt.Errorf("the answer is no list of pods")
	}
	return all, nil
}

// Revision returns the present version of all that the API server stores. It never goes back, but by a restore of etcd.
func (p *Lookup) Revision(ctx context.Context) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	node, err := p.api.NodeName(ctx)
	if err != nil {
		return 0, err
	}
	// A list from no cache. The selector makes it one object, which a node may list.
	body, err := p.api.Do(ctx, kubelet.Request{
		Method: http.MethodGet, Path: []string{"api", "v1", "nodes"}, Metadata: true, List: true,
		Query: url.Values{"fieldSelector": {"metadata.name=" + node}}.Encode(),
	})
	if err != nil {
		return 0, fmt.Errorf("read the API server's version: %w", err)
	}
	var list status
	if err := json.Unmarshal(body, &list); err != nil {
		return 0, fmt.Errorf("read the API server's version: %w", err)
	}
	revision, err := strconv.ParseUint(list.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the API server's version: %.40q is no number", list.Metadata.ResourceVersion)
	}
	return revision, nil
}
