package vm

import (
	"fmt"
	"log/slog"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
)

// List returns the VM containers that pass a filter. Ids in the filter may be shortened.
func (m *Manager) List(f *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	if f.GetId() != "" {
		c, err := m.find(f.GetId())
		if err != nil {
			return nil
		}
		f = &runtimeapi.ContainerFilter{
			Id: c.record().ID, PodSandboxId: f.PodSandboxId, State: f.State, LabelSelector: f.LabelSelector,
		}
	}
	f = m.wholeSandboxID(f)
	var list []*runtimeapi.Container
	for _, c := range m.all("") {
		r := c.record()
		if r.State == record.Creating {
			continue
		}
		if l := listed(r); matches(l, f) {
			list = append(list, l)
		}
	}
	return list
}

// wholeSandboxID lengthens the sandbox's id in a filter, where it is one VM sandbox's.
func (m *Manager) wholeSandboxID(f *runtimeapi.ContainerFilter) *runtimeapi.ContainerFilter {
	id := f.GetPodSandboxId()
	if id == "" {
		return f
	}
	whole, n := id, 0
	m.mu.RLock()
	defer m.mu.RUnlock()
	for full := range m.sandboxes {
		if len(full) >= len(id) && full[:len(id)] == id {
			whole = full
			n++
		}
	}
	if n != 1 {
		return f
	}
	return &runtimeapi.ContainerFilter{
		Id: f.GetId(), PodSandboxId: whole, State: f.GetState(), LabelSelector: f.GetLabelSelector(),
	}
}

// listed is a container as CRI lists it: containerd puts the config's digest
// into both of the image's ids here, and so does this.
func listed(r record.Container) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id:           r.ID,
		PodSandboxId: r.SandboxID,
		Metadata:     r.Config.Value.GetMetadata(),
		Image:        r.Config.Value.GetImage(),
		ImageRef:     r.Image.ID,
		ImageId:      r.Image.ID,
		State:        criState(r.State),
		CreatedAt:    r.CreatedAt.UnixNano(),
		Labels:       r.Config.Value.GetLabels(),
		Annotations:  r.Config.Value.GetAnnotations(),
	}
}

// Status returns a container's status, and with verbose what else there is to
// tell, as JSON in "info".
func (m *Manager) Status(id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := m.find(id)
	if err != nil {
		return nil, err
	}
	r := c.record()
	reply := &runtimeapi.ContainerStatusResponse{Status: status(r)}
	if !verbose {
		return reply, nil
	}
	reply.Info, err = m.info(c)
	return reply, err
}

// status is a container as CRI reports it.
func status(r record.Container) *runtimeapi.ContainerStatus {
	s := &runtimeapi.ContainerStatus{
		Id:          r.ID,
		Metadata:    r.Config.Value.GetMetadata(),
		State:       criState(r.State),
		CreatedAt:   r.CreatedAt.UnixNano(),
		Image:       r.Config.Value.GetImage(),
		ImageRef:    r.Image.ID,
		ImageId:     r.Image.ID,
		Labels:      r.Config.Value.GetLabels(),
		Annotations: r.Config.Value.GetAnnotations(),
		Mounts:      r.Config.Value.GetMounts(),
		LogPath:     r.LogPath,
		Resources:   &runtimeapi.ContainerResources{Linux: resources(r)},
		User: &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{
			Uid: int64(r.Domain.UID), Gid: int64(r.Domain.GID),
		}},
		StopSignal: r.Config.Value.GetStopSignal(),
	}
	if s.StopSignal == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		s.StopSignal = runtimeapi.Signal_SIGNAL_SIGTERM
	}
	if r.Image.Tag != "" {
		s.Image = &runtimeapi.ImageSpec{Image: r.Image.Tag}
	}
	if r.Image.Ref != "" {
		s.ImageRef = r.Image.Ref
	}
	if r.State == record.Running || r.State == record.Exited && !r.StartedAt.IsZero() {
		s.StartedAt = r.StartedAt.UnixNano()
	}
	if r.State == record.Exited {
		s.FinishedAt = r.FinishedAt.UnixNano()
		s.ExitCode, s.Reason, s.Message = r.ExitCode, r.Reason, r.Message
	}
	return s
}

// criState is a record's state in CRI's terms: a container that is being
// started is not running yet.
func criState(s record.State) runtimeapi.ContainerState {
	switch s {
	case record.Creating, record.Created, record.Starting:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	case record.Running:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	case record.Exited:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

// ReopenLog opens a running container's log anew, after its rotation.
func (m *Manager) ReopenLog(id string) error {
	c, err := m.find(id)
	if err != nil {
		return err
	}
	r := c.record()
	if r.State != record.Running {
		return fmt.Errorf("reopen the log of container %q: container is not running", r.ID)
	}
	return m.Consoles.Reopen(r.ID)
}

func (m *Manager) log(r record.Container) *slog.Logger {
	pod := r.Sandbox.Value.GetMetadata()
	return m.Logger.With(
		slog.Group("pod", "namespace", pod.GetNamespace(), "name", pod.GetName()),
		slog.Group("container", "name", r.Config.Value.GetMetadata().GetName(), "id", r.ID))
}
