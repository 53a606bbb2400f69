package report

import (
	"log/slog"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/resources"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vminfo"
)

// Options are what Reports works with. All fields are needed.
type Options struct {
	Table      *table.Table
	Conditions *Conditions
	Agents     agents
	Groups     groups
	Disks      disks
	Domains    describer
	Progress   progress
	Layout     layout.Layout
	// ImageFS is the folder that containerd's ImageFsInfo names.
	ImageFS string
	Logger  *slog.Logger
}

// progress is what is known of containers that are not created yet; package lifecycle's Lifecycle.
type progress interface {
	Unfinished(sandboxID string) *vminfo.Making
}

// Reports answers CRI's questions about VM containers.
type Reports struct {
	table    *table.Table
	stats    *Stats
	info     *info
	progress progress
}

// New returns Reports.
func New(o Options, stats *Stats) *Reports {
	return &Reports{table: o.Table, stats: stats, info: newInfo(o), progress: o.Progress}
}

// Unfinished returns the container that CreateContainer makes in a sandbox now,
// nil if there is none.
func (p *Reports) Unfinished(sandboxID string) *vminfo.Making {
	return p.progress.Unfinished(sandboxID)
}

// Status returns a container's status, and with verbose what else is known, as
// JSON in "info".
func (p *Reports) Status(id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	v, err := p.table.Find(id)
	if err != nil {
		return nil, err
	}
	reply := &runtimeapi.ContainerStatusResponse{Status: statusOf(v)}
	if !verbose || v.Record().State == record.Unknown {
		return reply, nil
	}
	reply.Info, err = p.info.of(v)
	return reply, err
}

// Statuses returns the statuses of a sandbox's VM containers.
func (p *Reports) Statuses(sandboxID string) []*runtimeapi.ContainerStatus {
	var all []*runtimeapi.ContainerStatus
	for _, v := range p.table.All(sandboxID) {
		if r := v.Record(); reported(r) {
			all = append(all, statusOf(v))
		}
	}
	return all
}

// statusOf is a container as CRI reports it, with what the node's witnesses disagree on.
func statusOf(v *table.VM) *runtimeapi.ContainerStatus {
	s := status(v.Record())
	if dispute := v.Dispute(); dispute != "" && v.Record().State == record.Running {
		s.Reason, s.Message = condition.ReasonDisputed, dispute
	} else if text := v.Disowned(); text != "" && v.Record().State == record.Running {
		s.Reason, s.Message = condition.ReasonPodsUnknown, text
	}
	return s
}

// status is what a record says of a container in CRI's terms.
func status(r record.Container) *runtimeapi.ContainerStatus {
	s := &runtimeapi.ContainerStatus{
		Id:          r.ID,
		Metadata:    r.Config.Value.GetMetadata(),
		State:       State(r.State),
		CreatedAt:   r.CreatedAt.UnixNano(),
		Image:       r.Config.Value.GetImage(),
		ImageRef:    r.Image.ID,
		ImageId:     r.Image.ID,
		Labels:      r.Config.Value.GetLabels(),
		Annotations: r.Config.Value.GetAnnotations(),
		Mounts:      r.Config.Value.GetMounts(),
		LogPath:     r.LogPath,
		Resources:   &runtimeapi.ContainerResources{Linux: resources.Of(r)},
		User: &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{
			Uid: int64(r.Domain.UID), Gid: int64(r.Domain.GID),
		}},
		StopSignal: r.Config.Value.GetStopSignal(),
	}
	if s.Metadata == nil { // of a record that cannot be used
		s.Metadata = &runtimeapi.ContainerMetadata{}
	}
	if s.StopSignal == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		s.StopSignal = runtimeapi.Signal_SIGNAL_SIGTERM
	}
	if r.Image.Tag != "" {
		// containerd names an image by one of its tags; others, whose image is the same, may have set it.
		s.Image = &runtimeapi.ImageSpec{Image: r.Image.Tag, UserSpecifiedImage: r.Config.Value.GetImage().GetUserSpecifiedImage()}
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
	if r.State == record.Unknown {
		s.Reason, s.Message = r.Reason, r.Message
	}
	return s
}

// reported reports whether lists have a container: it is created, and it is known
// which pod's it is.
func reported(r record.Container) bool {
	return r.State != record.Creating && r.SandboxID != "" && r.Config.Value.GetMetadata() != nil
}

// State translates a record's state into CRI's: a container whose start is under
// way does not run yet.
func State(s record.State) runtimeapi.ContainerState {
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
