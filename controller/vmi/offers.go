package vmi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// offers says which field of an instance no node can fulfil. The scheduler says only how many nodes do not match. The
// cache has no labels of nodes: they are read when a pod finds no node, and kept for a while.
type offers struct {
	live    client.Reader
	now     func() time.Time
	cluster reader

	mu    sync.Mutex
	since time.Time
	known []map[string]bool
}

const (
	// offersAge is how long the labels of nodes are kept.
	offersAge = time.Minute
	// maxOffers bounds the different kinds of nodes, and offersPage what one answer has.
	maxOffers  = 1000
	offersPage = 500
	// maxNamed is how many alternatives a message names.
	maxNamed = 10
)

// unmet returns which field keeps the pod of an instance off all nodes; empty if that is not known.
func (o *offers) unmet(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, p *corev1.Pod) (string, error) {
	if pod.Unscheduled(p) == nil {
		return "", nil
	}
	around, err := o.cluster.read(ctx, vmi)
	if err != nil {
		return "", err
	}
	if pod.ObsoleteCPU(&vmi.Spec, around) {
		return fmt.Sprintf("The cluster's configuration has the CPU model %s of spec.domain.cpu.model in obsoleteCPUModels.", vmi.Spec.Domain.CPU.Model), nil
	}
	nodes, err := o.read(ctx)
	if err != nil {
		return "", err
	}
	return unmet(pod.Needs(&vmi.Spec, around), nodes), nil
}

// unmet returns which needs no node fulfils, each alone or all together; empty if a node fulfils all.
func unmet(needs []pod.Need, nodes []map[string]bool) string {
	var alone, together []string
	for _, n := range needs {
		together = append(together, fmt.Sprintf("%s %s (%s)", n.Noun, n.Value, n.Field))
		if !slices.ContainsFunc(nodes, func(has map[string]bool) bool { return has[n.Label] }) {
			alone = append(alone, fmt.Sprintf("No node has the %s %s of %s. %s", n.Noun, n.Value, n.Field, alternatives(n, nodes)))
		}
	}
	if len(alone) > 0 {
		return strings.Join(alone, " ")
	}
	all := func(has map[string]bool) bool {
		return !slices.ContainsFunc(needs, func(n pod.Need) bool { return !has[n.Label] })
	}
	if len(needs) == 0 || len(nodes) == 0 || slices.ContainsFunc(nodes, all) {
		return ""
	}
	return "No node has all of: " + strings.Join(together, ", ") + "."
}

// alternatives names what nodes have instead, most similar first.
func alternatives(n pod.Need, nodes []map[string]bool) string {
	var all []string
	for _, has := range nodes {
		for key := range has {
			if value, is := strings.CutPrefix(key, n.Kind); is {
				all = append(all, value)
			}
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(cmp.Compare(common(b, n.Value), common(a, n.Value)), strings.Compare(a, b))
	})
	all = slices.Compact(all)
	more := ""
	if left := len(all) - maxNamed; left > 0 {
		all, more = all[:maxNamed], fmt.Sprintf(" and %d more", left)
	}
	return "Nodes have " + strings.Join(all, ", ") + more + "."
}

// common returns the length of the common prefix of two words, whatever their case.
func common(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// read returns what the labels of nodes offer, once for nodes that are alike.
func (o *offers) read(ctx context.Context) ([]map[string]bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if age := o.now().Sub(o.since); age >= 0 && age < offersAge {
		return o.known, nil
	}
	var known []map[string]bool
	seen := map[string]bool{}
	list := new(metav1.PartialObjectMetadataList)
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	for {
		if err := o.live.List(ctx, list, client.Limit(offersPage), client.Continue(list.Continue)); err != nil {
			return nil, fmt.Errorf("list what nodes offer VMs: %w", err)
		}
		for i := range list.Items {
			var keys []string
			has := map[string]bool{}
			for key := range list.Items[i].Labels {
				if pod.NeedLabel(key) {
					keys, has[key] = append(keys, key), true
				}
			}
			slices.Sort(keys)
			id := strings.Join(keys, "\n")
			if len(keys) > 0 && !seen[id] && len(known) < maxOffers {
				seen[id], known = true, append(known, has)
			}
		}
		if list.Continue == "" {
			break
		}
	}
	o.known, o.since = known, o.now()
	return known, nil
}
