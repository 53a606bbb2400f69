package disowned

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// guest is a guest that runs, of a pod of the API server's.
type guest struct {
	condition.NodeGuest
	pod   podstatus.Pod
	id    string // of the container
	since time.Time
}

// guestOf returns the guest of a record; ok is false for a pod that no API server has, such as one of crictl's.
func guestOf(r record.Container) (g guest, ok bool) {
	sandbox := r.Sandbox.Value
	pod, ok := podstatus.PodOf(sandbox)
	if !ok {
		return g, false
	}
	g = guest{pod: pod, id: r.ID, since: r.StartedAt, NodeGuest: condition.NodeGuest{Namespace: pod.Namespace, Pod: pod.Name, UID: pod.UID}}
	g.VMI = sandbox.GetAnnotations()[kubevirt.DomainAnnotation]
	var spec struct {
		Volumes []kubevirt.Volume `json:"volumes"`
	}
	// A spec that can't be read has not started: the guest is known without its PVCs.
	_ = json.Unmarshal([]byte(sandbox.GetAnnotations()[vmspec.AnnotationVMI]), &spec)
	for _, v := range spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			g.PVCs = append(g.PVCs, v.PersistentVolumeClaim.ClaimName)
		case v.DataVolume != nil:
			g.PVCs = append(g.PVCs, v.DataVolume.Name)
		}
	}
	return g, true
}

// String names a guest for an administrator.
func (g guest) String() string {
	text := g.Namespace + "/" + g.Pod
	if len(g.PVCs) > 0 {
		text += " (PVC " + strings.Join(g.PVCs, ", ") + ")"
	}
	return text
}

const (
	// maxNamed bounds the guests that a message names, maxText its length in bytes.
	maxNamed = 20
	maxText  = 4 << 10
)

// names lists guests for a message.
func names(all []guest) string {
	var some []string
	for _, g := range all[:min(len(all), maxNamed)] {
		some = append(some, g.String())
	}
	slices.Sort(some)
	text := strings.Join(some, "; ")
	if len(all) > maxNamed {
		text += fmt.Sprintf("; and %d more", len(all)-maxNamed)
	}
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// encode returns guests for [condition.AnnotationGuests]; "" for none. What does not fit is counted.
func encode(all []guest) (string, error) {
	if len(all) == 0 {
		return "", nil
	}
	its := condition.NodeGuests{Guests: []condition.NodeGuest{}}
	size := len(`{"guests":[],"more":1000000}`)
	for i, g := range all {
		one, err := json.Marshal(g.NodeGuest)
		if err != nil {
			return "", fmt.Errorf("encode guest %s/%s: %w", g.Namespace, g.Pod, err)
		}
		if size += len(one) + len(","); size > condition.MaxAnnotationGuests {
			its.More = len(all) - i
			break
		}
		its.Guests = append(its.Guests, g.NodeGuest)
	}
	text, err := json.Marshal(its)
	return string(text), err
}
