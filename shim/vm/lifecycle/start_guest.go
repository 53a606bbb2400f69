package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/forks"
	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmspec"

	"github.com/nodevirt/nodevirt/netsetup"
)

// parts are what the phases of a start work with.
type parts struct {
	observer    Observer
	table       *table.Table
	groups      Groups
	network     Network
	consoles    Consoles
	tpms        TPMs
	filesystems Filesystems
	hooks       Hooks
	disks       DiskAttacher
	domains     starter
	processes   Processes
	agents      Agents
	describer   Describer
	layout      layout.Layout
	resolvConf  string
	hostDevices hostdevice.Node
	forks       *forks.Store
	host        Host
	late        *unanswered
	log         *slog.Logger
}

// start is one start under way: what each phase makes for those after it. A phase
// writes only the fields that are named after it; rec does not change.
type start struct {
	parts parts
	vm    *table.VM
	rec   record.Container
	netns string // the pod's network namespace

	plan      *netsetup.Plan           // taps; nil for a VM without cards
	plugged   []netsetup.PluggedDevice // taps: those that network binding plug-ins made
	files     map[string][]*os.File    // disks: by FD group
	memory    *os.File                 // domain: that of the checkpoint; nil for a guest that boots
	fork      *forks.Memory            // domain: memory with shared RAM; nil if the RAM is not shared
	variables *os.File                 // variables: those of the firmware that are persistent; nil without any
	process   int                      // process: QEMU's id, from its pid file
	qemu      int                      // start: QEMU's id, from libvirt
	machine   string                   // board: the type of the VM's board
	identity  *record.Fork             // identity: nil for a guest that is no fork

	timeline []record.Phase // the phases, once none runs
}

// record is the VM's record with what the start has made. A phase that calls it waits for each phase
// whose field it reads, or runs before those begin.
func (s *start) record() record.Container {
	r := s.rec
	r.Network = s.plan
	r.Domain.Machine = s.machine
	if s.identity != nil {
		r.Fork = s.identity
	}
	r.Timeline = append(slices.Clone(r.Timeline), s.timeline...)
	return r
}

// closeFiles closes the files of the taps, the disks, the variables and the memory: QEMU has its own descriptors.
func (s *start) closeFiles() {
	closePlugged(s.plugged)
	if s.variables != nil {
		s.variables.Close()
	}
	if s.memory != nil {
		s.memory.Close()
	}
	if s.fork != nil {
		_ = s.fork.Close() // it was only read
	}
	for _, group := range s.files {
		for _, f := range group {
			f.Close()
		}
	}
}

func (s *start) makeGroup(context.Context) error { return s.parts.groups.Create(s.rec) }

// followConsole makes the file to which QEMU appends the console, and has it
// followed before the guest prints its first byte.
func (s *start) followConsole(context.Context) error {
	f, err := os.OpenFile(s.parts.layout.ConsoleFile(s.rec.ID), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return s.parts.consoles.Follow(consoleOf(s.parts.layout, s.rec))
}

// makeDisplay makes the folder in which QEMU makes the display's socket. Only
// QEMU's user and root may enter it.
func (s *start) makeDisplay(context.Context) error {
	if !s.rec.Spec.Display {
		return nil
	}
	dir := s.parts.layout.DisplayDir(s.rec.ID)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the display's folder: %w", err)
	}
	if err := os.Lchown(dir, int(s.rec.Domain.UID), int(s.rec.Domain.GID)); err != nil {
		return fmt.Errorf("give the display's folder to QEMU: %w", err)
	}
	return nil
}

func (s *start) attachDisks(ctx context.Context) (err error) {
	s.files, err = s.parts.disks.Attach(ctx, s.rec)
	return err
}

func (s *start) awaitHooks(ctx context.Context) error { return s.parts.hooks.Await(ctx, s.rec) }

func (s *start) defineDomain(ctx context.Context) error {
	desc := s.parts.describer.Describe(s.record())
	if l := desc.Spec.LaunchSecurity; l != nil {
		var err error
		if desc.Encryption, err = s.parts.host.Encryption(ctx, desc.Accelerator, desc.Emulator); err == nil {
			err = desc.Encryption.Offers(*l)
		}
		if err != nil {
			return err
		}
	}
	if s.rec.Restored != nil {
		if err := s.openMemory(ctx); err != nil {
			return err
		}
	}
	if s.fork != nil {
		desc.RAMSocket = s.parts.layout.RAMSocket(s.rec.ID)
	}
	text, err := domain.XML(desc)
	if err != nil {
		return err
	}
	if text, err = s.parts.hooks.OnDefineDomain(ctx, s.rec, text); err != nil {
		return err
	}
	if s.rec.Restored != nil {
		if text, err = resumed(text, s.rec.Domain.UUID, *s.rec.Restored); err != nil {
			return err
		}
	}
	uuid := s.rec.Domain.UUID
	return s.parts.late.note(uuid, s.parts.domains.Define(ctx, text))
}

func (s *start) startDomain(ctx context.Context) (err error) {
	s.parts.agents.Absent(s.vm) // until an event reports that it came
	uuid := s.rec.Domain.UUID
	taps, err := passTaps(s.parts.layout, s.rec, s.plugged)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, taps.Close()) }()
	if s.rec.Restored != nil {
		s.qemu, err = s.resumeDomain(ctx)
		return s.parts.late.note(uuid, err)
	}
	s.qemu, err = s.parts.domains.Start(ctx, uuid, s.files)
	return s.parts.late.note(uuid, err)
}

// awaitProcess waits for QEMU's process, which exists before libvirtd has
// finished its talk with it.
func (s *start) awaitProcess(ctx context.Context) (err error) {
	s.process, err = s.parts.processes.AwaitProcess(ctx, s.rec.Domain.Name)
	return err
}

// placeQEMU moves QEMU into the VM's cgroup. A QEMU that has ended meanwhile is no
// error here: the phase start says why it ended.
func (s *start) placeQEMU(context.Context) error {
	err := s.parts.groups.Add(s.rec, s.process)
	if err == nil {
		err = s.adjustOOMScore(s.process)
	}
	if err == nil && s.rec.Spec.LockMemory {
		err = letLockMemory(s.process, lockable(s.rec.Spec))
	}
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// roomForDevices is what devices lock beside the guest's memory: the memory of their registers.
// libvirt adds as much for host devices.
const roomForDevices = 1 << 30

// lockable returns how much memory, in bytes, the QEMU of a VM may lock: the guest's, and QEMU's own. The
// VM's cgroup bounds what QEMU really has.
func lockable(spec vmspec.Spec) uint64 {
	return uint64(max(spec.Memory, spec.MaxMemory) + spec.AddedOverhead + roomForDevices)
}

// letLockMemory raises the limit of QEMU's locked memory, which is low for a VM without host devices.
func letLockMemory(qemu int, bytes uint64) error {
	var has unix.Rlimit
	err := unix.Prlimit(qemu, unix.RLIMIT_MEMLOCK, nil, &has)
	if err == nil {
		err = unix.Prlimit(qemu, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: max(has.Cur, bytes), Max: max(has.Max, bytes)}, nil)
	}
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("let QEMU lock memory: %w; give the shim CAP_SYS_RESOURCE, or remove memLock from the VM", err)
	case err != nil:
		return fmt.Errorf("let QEMU lock memory: %w", err)
	}
	return nil
}

// adjustOOMScore makes QEMU as likely a victim of the OOM killer as the kubelet
// wants the container to be. To make it less likely than the shim needs a
// capability that root does not have on every node: without it, the score stays.
func (s *start) adjustOOMScore(qemu int) error {
	score := s.rec.Config.Value.GetLinux().GetResources().GetOomScoreAdj()
	if score == 0 {
		return nil
	}
	err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", qemu), []byte(strconv.FormatInt(score, 10)), 0)
	if errors.Is(err, os.ErrPermission) {
		table.Logger(s.parts.log, s.rec).Warn("lowering QEMU's OOM score is not permitted", "score", score)
		return nil
	}
	if err != nil {
		return fmt.Errorf("set QEMU's OOM score: %w", err)
	}
	return nil
}

// resume places QEMU's threads, which are in the VM's cgroup now, and lets the guest run, unless
// its author wants it paused. It pins by the record of the start's beginning: the phase board writes
// meanwhile.
func (s *start) resume(ctx context.Context) error {
	if err := (pinner{s.parts.describer, s.parts.domains}).pin(ctx, s.rec); err != nil {
		return err
	}
	if s.rec.Spec.StartPaused {
		return nil
	}
	return s.parts.domains.Resume(ctx, s.rec.Domain.UUID)
}
