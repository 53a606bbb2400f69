package report

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

// List returns the VM containers that pass a filter. Ids in the filter may be shortened.
func (p *Reports) List(f *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	if f.GetId() != "" {
		v, err := p.table.Find(f.GetId())
		if err != nil {
			return nil
		}
		f = &runtimeapi.ContainerFilter{
			Id: v.Record().ID, PodSandboxId: f.PodSandboxId, State: f.State, LabelSelector: f.LabelSelector,
		}
	}
	f = p.wholeSandboxID(f)
	var list []*runtimeapi.Container
	for _, v := range p.table.All("") {
		r := v.Record()
		if !reported(r) {
			continue
		}
		if l := listed(r); matches(l, f) {
			list = append(list, l)
		}
	}
	return list
}

// wholeSandboxID completes the sandbox's id in a filter, if it is one VM sandbox's.
func (p *Reports) wholeSandboxID(f *runtimeapi.ContainerFilter) *runtimeapi.ContainerFilter {
	id := f.GetPodSandboxId()
	if id == "" {
		return f
	}
	found := p.table.SandboxesWith(id)
	if len(found) != 1 {
		return f
	}
	return &runtimeapi.ContainerFilter{
		Id: f.GetId(), PodSandboxId: found[0], State: f.GetState(), LabelSelector: f.GetLabelSelector(),
	}
}

// listed is a container as CRI lists it. Like containerd, it puts the config's
// digest into both of the image's ids.
func listed(r record.Container) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id:           r.ID,
		PodSandboxId: r.SandboxID,
		Metadata:     r.Config.Value.GetMetadata(),
		Image:        r.Config.Value.GetImage(),
		ImageRef:     r.Image.ID,
		ImageId:      r.Image.ID,
		State:        State(r.State),
		CreatedAt:    r.CreatedAt.UnixNano(),
		Labels:       r.Config.Value.GetLabels(),
		Annotations:  r.Config.Value.GetAnnotations(),
	}
}

// matches reports whether a container passes CRI's filter, whose ids are whole.
func matches(c *runtimeapi.Container, f *runtimeapi.ContainerFilter) bool {
	if f == nil {
		return true
	}
	if f.GetId() != "" && f.GetId() != c.GetId() ||
		f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.GetPodSandboxId() ||
		f.GetState() != nil && f.GetState().GetState() != c.GetState() {
		return false
	}
	for k, v := range f.GetLabelSelector() {
		if got, ok := c.GetLabels()[k]; !ok || got != v {
			return false
		}
	}
	return true
}
