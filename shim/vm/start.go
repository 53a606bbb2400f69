package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// launch is one start under way: what the phases make for those that follow.
// The end of a machine is the same phases backwards, with the record alone.
type launch struct {
	*Manager
	c      *machine
	rec    record.Container
	pod    pod
	group  *cgroup.Group
	beside *beside
	files  map[string][]*os.File // of the disks, by FD group
	qemu   int
}

// phase is a step of a start. Its undo works from the record alone, from every
// half-made state and when there is nothing to undo; it has time of its own, so
// that a part which hangs takes none of the others'.
type phase struct {
	name     string
	do       func(*launch, context.Context) error
	undo     func(*launch, context.Context) error
	undoTime time.Duration
}

// phases is a start from its begin to its end. The cgroup comes before the
// network since it can go only when dnsmasq has gone; the tap is moved into the
// pod only when QEMU, in libvirtd's network namespace, has it open. What the
// next phases can do without goes on [beside] them until "connect" waits for it.
func phases() []phase {
	return []phase{
		{"cgroup", (*launch).makeGroup, (*launch).removeGroup, 5 * time.Second},
		{"network", (*launch).makeNetwork, (*launch).removeNetwork, 10 * time.Second},
		{"console", (*launch).followConsole, (*launch).finishConsole, 10 * time.Second},
		{"display", (*launch).makeDisplay, (*launch).removeDisplay, 5 * time.Second},
		{"disks", (*launch).attachDisks, (*launch).detachDisks, 10 * time.Second},
		{"domain", (*launch).startDomain, (*launch).removeDomain, 20 * time.Second},
		{"connect", (*launch).awaitBeside, nil, 0},
		{"resume", (*launch).resume, nil, 0},
	}
}

// startTime bounds a start, whose caller may set no deadline. A kubelet waits for
// two minutes: it should learn what hangs.
const startTime = 100 * time.Second

// Start boots a created container.
func (m *Manager) Start(ctx context.Context, id string) (err error) {
	c, err := m.find(id)
	if err != nil {
		return err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := atMost(ctx, startTime)
	defer cancel()
	r := c.record()
	if r.State != record.Created {
		return fmt.Errorf("failed to set starting state for container %q: container is in %s state", r.ID, criState(r.State))
	}
	p, err := m.pod(ctx, r.SandboxID)
	if err != nil {
		return err
	}
	m.awaitLibvirtd(ctx)
	r.State, r.Unclean = record.Starting, true
	if err := m.put(c, r); err != nil {
		return err
	}
	begun := time.Now()
	l := &launch{Manager: m, c: c, rec: r, pod: p}
	defer l.closeFiles()
	err = l.run(ctx)
	m.Metrics.Started(time.Since(begun), err)
	if err != nil {
		undoErr := l.takeBack(ctx)
		if undoErr != nil {
			defer m.cleanLater(c)
		}
		if errors.Is(err, domain.ErrUnavailable) && errors.Is(undoErr, domain.ErrUnavailable) {
			// The same again. What is left is taken back when libvirtd answers.
			m.log(l.rec).Warn("cleaning up after a failed start has to wait", "error", undoErr)
			undoErr = nil
		}
		err = errors.Join(err, undoErr)
		return errors.Join(err, m.failStart(c, l.rec, err))
	}
	m.serveOn(c)
	m.watchEnd(c)
	c.paused.Store(new(domain.ReasonNone))
	m.tell(c)
	m.log(l.rec).Info("VM started", "pid", l.qemu, "duration", time.Since(begun))
	m.publish(l.rec, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return nil
}

// returnTime is how long libvirtd, or this shim, may take to be back from a restart.
const returnTime = 3 * time.Second

// awaitLibvirtd waits a moment for a libvirtd that is away, before a call that
// needs it: a start can fail only once, and nobody should have to know that the
// shim has just started. One that stays away is for the call to tell.
func (m *Manager) awaitLibvirtd(ctx context.Context) {
	ctx, cancel := atMost(ctx, returnTime)
	defer cancel()
	_ = m.Driver.Connected(ctx)
}

// run goes through the phases, and records the machine as running. When it
// returns, nothing goes on beside it.
func (l *launch) run(ctx context.Context) error {
	l.beside = newBeside(ctx)
	for _, p := range phases() {
		begun := time.Now()
		err := p.do(l, ctx)
		l.Metrics.StartPhase(p.name, time.Since(begun))
		if err != nil {
			if cause := l.beside.end(); cause != nil {
				err = cause // a tap that is gone again, for one
			}
			return fmt.Errorf("start VM container %q of pod %s: %w%s",
				l.rec.Config.Value.GetMetadata().GetName(), podName(l.rec), err, wayOut(err))
		}
		l.log(l.rec).Debug("phase of a start", "phase", p.name, "duration", time.Since(begun))
	}
	l.rec.State, l.rec.StartedAt, l.rec.Domain.PID = record.Running, time.Now(), l.qemu
	return l.put(l.c, l.rec)
}

// wayOut is what can be done about a failed start, where the error doesn't say.
func wayOut(err error) string {
	switch {
	case errors.Is(err, domain.ErrUnsupported):
		return ": change annotation " + vmspec.AnnotationVMI + ", or have the pod run on another node"
	case errors.Is(err, iscsi.ErrUnavailable):
		return "; or choose another mode than iscsi: annotation " + vmspec.AnnotationDiskMode +
			", or disks.mode in the config of nodevirt-shim"
	case errors.Is(err, domain.ErrUnavailable):
		return ": see whether it runs on this node, and start a new container"
	}
	return ""
}

func podName(r record.Container) string {
	pod := r.Sandbox.Value.GetMetadata()
	return pod.GetNamespace() + "/" + pod.GetName()
}

// takeBack undoes the phases, the last first, whatever of them was done, and
// notes in the record, which the caller writes, whether all is clean now.
func (l *launch) takeBack(ctx context.Context) error {
	if !l.rec.Unclean {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for _, p := range slices.Backward(phases()) {
		if p.undo == nil {
			continue
		}
		if err := l.undo(ctx, p); err != nil {
			errs = append(errs, fmt.Errorf("take back %s: %w", p.name, err))
		}
	}
	l.rec.Unclean = len(errs) > 0
	return errors.Join(errs...)
}

func (l *launch) undo(ctx context.Context, p phase) error {
	ctx, cancel := atMost(ctx, p.undoTime)
	defer cancel()
	return p.undo(l, ctx)
}

// failStart records that a start failed, as containerd does it.
func (m *Manager) failStart(c *machine, r record.Container, cause error) error {
	r.State, r.FinishedAt, r.Domain.PID = record.Exited, time.Now(), 0
	r.ExitCode, r.Reason, r.Message = 128, reasonStartError, cause.Error()
	defer m.tell(c)
	// Also on a full disk: else nobody could go on. A shim that starts anew finds the start cut off.
	defer c.publish(r)
	return m.Records.PutContainer(r)
}

func (l *launch) makeGroup(context.Context) (err error) {
	if l.group, err = l.openGroup(); err != nil {
		return err
	}
	return l.group.Create(l.limits(resources(l.rec), l.rec.Sandbox.Value))
}

func (l *launch) openGroup() (*cgroup.Group, error) {
	return cgroup.Open(l.rec.Sandbox.Value.GetLinux().GetCgroupParent(), l.rec.ID)
}

func (l *launch) removeGroup(context.Context) error {
	g, err := l.openGroup()
	if err != nil {
		return err
	}
	return g.Remove()
}

// followConsole makes the file that QEMU will append the console to, and has
// it followed before the guest says its first word.
func (l *launch) followConsole(context.Context) error {
	f, err := os.OpenFile(l.path(l.rec.ID, consoleFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return l.Consoles.Follow(l.console(l.rec.ID, l.rec.LogPath))
}

// finishConsole has the console followed, should a new shim not do so yet, to
// its end.
func (l *launch) finishConsole(ctx context.Context) error {
	if _, err := os.Lstat(l.path(l.rec.ID, consoleFile)); err != nil {
		return ignoreAbsent(err) // the start did not come so far
	}
	if err := l.Consoles.Follow(l.console(l.rec.ID, l.rec.LogPath)); err != nil {
		return err
	}
	err := l.Consoles.Finish(ctx, l.rec.ID)
	return errors.Join(err, ignoreAbsent(os.Remove(l.consoleSocket(l.rec.ID))))
}

func (l *launch) startDomain(ctx context.Context) error {
	text, err := domain.XML(l.machine())
	if err != nil {
		return err
	}
	if err := l.late.note(l.rec.Domain.UUID, l.Driver.Define(ctx, text)); err != nil {
		return err
	}
	l.beside.run(l.placeQEMU)
	l.beside.run(l.connect)
	l.agent(l.c).Tell(agent.Absent) // until an event says that it came
	l.qemu, err = l.Driver.Start(ctx, l.rec.Domain.UUID, l.files)
	return l.late.note(l.rec.Domain.UUID, err)
}

// placeQEMU moves QEMU into the VM's cgroup as soon as it is there, while
// libvirtd still talks with it.
func (l *launch) placeQEMU(ctx context.Context) error {
	pid, err := l.Driver.AwaitProcess(ctx, l.rec.Domain.Name)
	if err != nil {
		return err
	}
	if err := l.group.Add(pid); err != nil {
		return err
	}
	return l.adjustOOMScore(pid)
}

// adjustOOMScore makes QEMU as likely a victim of the OOM killer as the kubelet
// wants the container to be. To be less likely than the shim takes a capability
// that not every node's root has: without it the score stays.
func (l *launch) adjustOOMScore(qemu int) error {
	score := l.rec.Config.Value.GetLinux().GetResources().GetOomScoreAdj()
	if score == 0 {
		return nil
	}
	err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", qemu), []byte(strconv.FormatInt(score, 10)), 0)
	if errors.Is(err, os.ErrPermission) {
		l.log(l.rec).Warn("lowering QEMU's OOM score is not permitted", "score", score)
		return nil
	}
	if err != nil {
		return fmt.Errorf("set QEMU's OOM score: %w", err)
	}
	return nil
}

func (l *launch) removeDomain(ctx context.Context) error {
	if err := l.Driver.Destroy(ctx, l.rec.Domain.UUID); err != nil {
		return err
	}
	if err := l.Driver.Undefine(ctx, l.rec.Domain.UUID); err != nil {
		return err
	}
	return l.removeAgent()
}

func (l *launch) awaitBeside(context.Context) error { return l.beside.wait() }

func (l *launch) resume(ctx context.Context) error {
	return l.Driver.Resume(ctx, l.rec.Domain.UUID)
}

// machine is the domain that the record describes.
func (l *launch) machine() domain.Machine {
	r := l.rec
	pod := r.Sandbox.Value.GetMetadata()
	m := domain.Machine{
		Name: r.Domain.Name, UUID: r.Domain.UUID,
		ContainerID:   r.ID,
		PodNamespace:  pod.GetNamespace(),
		PodName:       pod.GetName(),
		ContainerName: r.Config.Value.GetMetadata().GetName(),
		Spec:          r.Spec,
		Accelerator:   l.Accelerator,
		Emulator:      l.Emulator,
		UID:           r.Domain.UID, GID: r.Domain.GID,
		ConsoleSocket: l.consoleSocket(r.ID),
		ConsoleLog:    l.path(r.ID, consoleFile),
		AgentSocket:   l.agentSocket(r.ID),
		DisplaySocket: l.displaySocket(r.ID),

		TerminalSockets: l.terminalSockets(r.ID),
		Disks:           l.Disks.Describe(r),
	}
	if r.Network != nil {
		for _, n := range r.Network.NICs {
			m.NICs = append(m.NICs, domain.NIC{Name: n.Card, Tap: n.Tap, MAC: net.HardwareAddr(n.GuestMAC), MTU: n.MTU})
		}
	}
	l.Manager.files().Describe(r, &m)
	return m
}
