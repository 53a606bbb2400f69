package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/report"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/tracing"
)

// starts boots created containers.
type starts struct {
	table      *table.Table
	sandboxes  Sandboxes
	libvirtd   connector
	conditions Conditions
	events     Publisher
	moves      Moves
	metrics    *metrics.Metrics
	tracing    *tracing.Tracing
	log        *slog.Logger
	runFolders func() error

	parts   parts
	down    *teardown
	ends    *ends
	dhcp    *dhcpKeeper
	helpers *helperKeeper

	announcer *announcer
}

func newStarts(o Options, down *teardown, ends *ends, dhcp *dhcpKeeper, helpers *helperKeeper, late *unanswered) *starts {
	return &starts{
		table: o.Table, sandboxes: o.Sandboxes, libvirtd: o.Connection, conditions: o.Conditions, events: o.Events, moves: o.Moves,
		metrics: o.Metrics, tracing: o.Tracing, log: o.Logger, runFolders: o.RunFolders, down: down, ends: ends, dhcp: dhcp, helpers: helpers, announcer: newAnnouncer(o),
		parts: parts{
			table: o.Table, groups: o.Groups, network: o.Network, consoles: o.Consoles, tpms: o.TPMs, filesystems: o.Filesystems, hooks: o.Hooks, disks: o.DiskAttacher,
			domains: o.Domains, observer: o.Observer, processes: o.Processes, agents: o.Agents, describer: o.Describer, layout: o.Layout,
			resolvConf: o.ResolvConf, hostDevices: o.HostDevices, forks: o.Forks, host: o.Host, late: late, log: o.Logger,
		},
	}
}

// startTime bounds a start for a caller that sets no deadline. A kubelet waits
// for two minutes, and should learn what hangs.
const startTime = 100 * time.Second

func (s *starts) start(ctx context.Context, id string) (err error) {
	v, err := s.table.Find(id)
	if err != nil {
		return err
	}
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := background.AtMost(ctx, startTime)
	defer cancel()
	r := v.Record()
	sandbox, _ := s.table.Sandbox(r.SandboxID)
	ctx, end := s.tracing.Start(ctx, tracedCall("StartContainer", sandbox, r.Config.Value, r.ID))
	defer func() { end(err) }()
	if r.State != record.Created {
		return fmt.Errorf("failed to set starting state for container %q: container is in %s state", r.ID, report.State(r.State))
	}
	netns, err := s.sandboxes.NetworkNamespace(ctx, r.SandboxID)
	if err != nil {
		return err
	}
	if err := s.runFolders(); err != nil { // the phase that needs the folder reports it
		table.Logger(s.log, r).Warn("making lost run folders again failed", "error", err)
	}
	awaitLibvirtd(ctx, s.libvirtd)
	r.State, r.Unclean, r.Trace = record.Starting, true, tracing.Format(ctx)
	if err := s.table.Put(v, r); err != nil {
		return err
	}
	return s.boot(ctx, &start{parts: s.parts, vm: v, rec: r, netns: netns})
}

// boot runs the phases, and undoes them if one fails.
func (s *starts) boot(ctx context.Context, one *start) error {
	begun := time.Now()
	defer one.closeFiles()
	err := s.run(ctx, one)
	s.metrics.Started(time.Since(begun), err)
	v := one.vm
	if err != nil {
		if one.fork != nil {
			_ = one.fork.Forget() // it was only read
		}
		return s.undo(ctx, one, err)
	}
	s.dhcp.keep(v)
	r := v.Record()
	if r.Incoming != "" {
		table.Logger(s.log, r).Info("VM waits for its guest", "migration", r.Incoming, "duration", time.Since(begun))
	} else {
		s.helpers.keep(v)
		s.ends.watch(v)
		s.conditions.SetState(v, begins(one.rec))
		table.Logger(s.log, r).Info("VM started", "pid", r.Domain.PID, "duration", time.Since(begun))
	}
	s.events.Publish(r, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return nil
}

// begins returns the state of a domain after its start.
func begins(r record.Container) domain.State {
	if r.Spec.StartPaused {
		return domain.State{Status: domain.StatusPaused, Reason: domain.ReasonUser}
	}
	return domain.State{Status: domain.StatusRunning}
}

// run runs the phases, and records the VM as running.
func (s *starts) run(ctx context.Context, one *start) error {
	log := table.Logger(s.log, one.rec)
	list, err := s.phasesOf(one.rec)
	if err == nil {
		var took timeline
		err = runPhases(ctx, one, list, func(p record.Phase) {
			took.add(p)
			s.metrics.StartPhase(p.Name, p.Took)
			log.Debug("phase of a start", "phase", p.Name, "duration", p.Took)
		})
		one.timeline = took.sorted()
	}
	if err != nil {
		return fmt.Errorf("start VM container %q of pod %s: %w%s",
			one.rec.Config.Value.GetMetadata().GetName(), table.PodName(one.rec), err, startRemedy(err, one.rec.Spec.Disks))
	}
	r := one.record()
	r.State, r.StartedAt, r.BootID, r.Domain.PID = record.Running, time.Now(), s.ends.nodeBootID(), one.qemu
	return s.table.Put(one.vm, r)
}

// undo undoes a failed start, and records its failure.
func (s *starts) undo(ctx context.Context, one *start, err error) error {
	r := one.record()
	undoErr := s.down.run(ctx, one.vm, &r)
	if undoErr != nil {
		defer s.ends.cleanLater(one.vm)
	}
	if errors.Is(err, domain.ErrUnavailable) && errors.Is(undoErr, domain.ErrUnavailable) {
		// The same error again. The rest is undone when libvirtd answers.
		table.Logger(s.log, r).Warn("cleaning up after a failed start waits for libvirtd", "error", undoErr)
		undoErr = nil
	}
	err = errors.Join(err, undoErr)
	return errors.Join(err, s.fail(one.vm, r, err))
}

// fail records that a start failed, as containerd does.
func (s *starts) fail(v *table.VM, r record.Container, cause error) error {
	r.State, r.FinishedAt, r.Domain.PID = record.Exited, time.Now(), 0
	r.ExitCode, r.Reason, r.Message = 128, report.ReasonStartError, cause.Error()
	defer s.conditions.Update(v)
	// Also if the disk is full: otherwise no other container could take its place.
	// The next shim finds a start that was cut off.
	defer v.Publish(r)
	return s.table.Save(r)
}

// returnTime is how long libvirtd, or this shim, may need for a restart.
const returnTime = 3 * time.Second

// awaitLibvirtd waits a moment for a libvirtd that is away. A start can fail only
// once, and its caller should not have to know that a shim has just started. If
// libvirtd stays away, the call that needs it reports that.
func awaitLibvirtd(ctx context.Context, c connector) {
	ctx, cancel := background.AtMost(ctx, returnTime)
	defer cancel()
	_ = c.Connected(ctx)
}

// networkRemedy names the network disks that QEMU may have failed to open: its errors
// name none.
func networkRemedy(disks []vmspec.Disk) string {
	text := ""
	for _, d := range disks {
		if d.Network == nil {
			continue
		}
		text += fmt.Sprintf("; disk %q is %s", d.Name, d.Network)
		if d.Network.SecretName != "" {
			text += ", with the credentials in Secret " + d.Network.SecretName
		}
	}
	if text != "" {
		text += ": check that the disk exists and that its server accepts these credentials"
	}
	return text
}

// startRemedy is what to do about a failed start, if the error does not say.
func startRemedy(err error, disks []vmspec.Disk) string {
	switch {
	case errors.Is(err, domain.ErrUnsupported):
		return ": change annotation " + vmspec.AnnotationVMI + ", or have the pod run on another node"
	case errors.Is(err, iscsi.ErrUnavailable):
		return "; or choose another mode than iscsi: annotation " + vmspec.AnnotationDiskMode +
			", or disks.mode in the config of nodevirt-shim"
	case errors.Is(err, domain.ErrUnavailable):
		return ": see whether it runs on this node, and start a new container"
	case strings.Contains(err.Error(), "iSCSI:") || strings.Contains(err.Error(), "rbd"):
		return networkRemedy(disks)
	}
	return ""
}
