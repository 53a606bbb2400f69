package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/bench/memory"
	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/guest"
)

const (
	// forkGoal is how long a fork may take to its first answer, as a part of its guest's boot.
	forkGoal = 0.15
	// forkSizeGoal is how long a fork may take, against one of the smallest size.
	forkSizeGoal = 1.3
	// restoreGoal is how long a restore may take that reads the memory, in milliseconds, and restoreSizeGoal how
	// long one of 1 GiB, against the smallest.
	restoreGoal     = 1000
	restoreSizeGoal = 1.5
	// forkMemoryGoal is how much RAM a fork may have that it does not share, in MiB.
	forkMemoryGoal = 25
	// filled is the part of a guest's RAM that it has written when it is saved: a fourth.
	filled = 4

	forkVMI = `{"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}],
		"interfaces": [{"name": "default", "masquerade": {}}]}}, "networks": [{"name": "default", "pod": {}}],
		"volumes": [{"name": "root", "containerDisk": {"image": ""}}]}`
)

// forkSizes are the guests' RAM, in MiB.
func forkSizes() []int64 { return []int64{128, 1024, 2048} }

// fork compares guests that go on from a checkpoint with the boot of the saved one: from CreateContainer to
// the first command that the guest's agent has run. A fork's time includes its new identity.
func (r *rig) fork(ctx context.Context) (s report.Section, err error) {
	disk, err := guest.TinyWithAgent(ctx, r.GuestOptions())
	if err != nil {
		return s, err
	}
	image, err := r.pushDisk(ctx, "tiny-agent:1", disk)
	if err != nil {
		return s, err
	}
	s.Title = fmt.Sprintf("Guests from a checkpoint, %d after the first, from CreateContainer to an answer of the agent", r.Forks)
	s.Notes = []string{"Each guest had written a fourth of its RAM before it was saved.", "First: the fork that makes the RAM which the next ones share."}
	var smallest, restored report.Series
	for _, size := range forkSizes() {
		f, err := r.forksOf(ctx, image, size)
		if err != nil {
			return s, fmt.Errorf("%d MiB: %w", size, err)
		}
		name := fmt.Sprintf("%d MiB", size)
		s.Rows = append(s.Rows,
			report.Row{Name: name + ": first", Unit: "ms", Kind: report.Ratio, Baseline: f.boot, Measured: f.first},
			report.Row{Name: name + ": next", Unit: "ms", Kind: report.Ratio, Goal: forkGoal, Baseline: f.boot, Measured: f.next})
		if smallest.Of == "" {
			smallest, restored = f.next, f.first
			s.Rows = append(s.Rows, report.Row{Name: name + ": first, in all", Unit: "ms", Kind: report.Value, Goal: restoreGoal, Measured: f.first})
		} else {
			against := report.Row{
				Name: fmt.Sprintf("%s: first, against %d MiB", name, forkSizes()[0]), Unit: "ms", Kind: report.Ratio,
				Baseline: restored, Measured: f.first,
			}
			if size == 1024 {
				against.Goal = restoreSizeGoal
			}
			s.Rows = append(s.Rows, against)
			s.Rows = append(s.Rows, report.Row{
				Name: fmt.Sprintf("%s: next, against %d MiB", name, forkSizes()[0]), Unit: "ms", Kind: report.Ratio, Goal: forkSizeGoal,
				Baseline: smallest, Measured: f.next,
			})
		}
		s.Rows = append(s.Rows,
			report.Row{Name: name + ": own RAM", Unit: "MiB", Kind: report.Value, Goal: forkMemoryGoal, Measured: f.own},
			report.Row{Name: name + ": QEMU (PSS)", Unit: "MiB", Kind: report.Value, Measured: f.pss})
		for _, p := range f.phases {
			if p.Median() >= phaseFloor {
				s.Rows = append(s.Rows, value(name+": next, phase "+p.Of, p))
			}
		}
	}
	return s, nil
}

// forked are the figures of one checkpoint.
type forked struct {
	boot, first, next, own, pss report.Series
	phases                      []report.Series // of the shim's work for the next forks
}

// phaseFloor is how many milliseconds a phase takes at least that the report names.
const phaseFloor = 5

// forksOf boots a guest, saves it, and starts others from there, which stay until all are measured.
func (r *rig) forksOf(ctx context.Context, image string, size int64) (f forked, err error) {
	f = forked{boot: report.Series{Of: "boot"}, first: report.Series{Of: "first"}, next: report.Series{Of: "next"},
		own: report.Series{Of: "own"}, pss: report.Series{Of: "PSS"}}
	var pods []*pod
	defer func() {
		for _, p := range pods {
			err = errors.Join(err, p.remove(context.WithoutCancel(ctx)))
		}
	}()
	run := func(name, image string, times *report.Series) (id string, err error) {
		p, err := r.forkPod(ctx, fmt.Sprintf("%s-%d", name, size), size)
		if err != nil {
			return "", err
		}
		pods = append(pods, p)
		begun := time.Now()
		if id, err = p.run(ctx, "guest", image); err != nil {
			return "", err
		}
		if err := p.answers(ctx, id); err != nil {
			return "", err
		}
		times.Add(milliseconds(time.Since(begun)))
		return id, nil
	}
	template, err := run("template", image, &f.boot)
	if err != nil {
		return f, err
	}
	// In a separate file system: the guest's may hold less.
	fill := fmt.Sprintf("mkdir /filled && mount -t tmpfs -o size=100%% filled /filled && yes nodevirt | head -c %d >/filled/file", size<<20/filled)
	if err := pods[0].sh(ctx, template, fill); err != nil {
		return f, err
	}
	archive := filepath.Join(r.Dir(), fmt.Sprintf("checkpoint-%d.tar", size))
	if _, err := r.shim.CheckpointContainer(ctx, &cri.CheckpointContainerRequest{ContainerId: template, Location: archive}); err != nil {
		return f, fmt.Errorf("save the guest: %w", err)
	}
	defer func() { err = errors.Join(err, os.Remove(archive)) }()
	if err := pods[0].end(ctx, template); err != nil { // a fork has the node for itself, as the boot had
		return f, err
	}
	if _, err := run("first", archive, &f.first); err != nil {
		return f, err
	}
	var ids []string
	for n := range r.Forks {
		id, err := run(fmt.Sprintf("next-%d", n), archive, &f.next)
		if err != nil {
			return f, err
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		if err := f.weigh(ctx, r, id); err != nil {
			return f, err
		}
	}
	f.phases, err = readPhases(filepath.Join(r.Dir(), "log", "shim.log"), r.Forks)
	return f, err
}

// weigh adds the memory of a fork.
func (f *forked) weigh(ctx context.Context, r *rig, id string) error {
	pid, err := r.qemu(ctx, id)
	if err != nil {
		return err
	}
	own, err := memory.Anonymous(pid, "memfd:nodevirt-ram")
	if err != nil {
		return err
	}
	pss, err := memory.PSS(pid)
	f.own.Add(own)
	f.pss.Add(pss)
	return err
}

// qemu returns the process of a VM's QEMU, as the machine sees it.
func (r *rig) qemu(ctx context.Context, id string) (int, error) {
	reply, err := r.shim.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return 0, err
	}
	var info struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(reply.Info["info"]), &info); err != nil || info.PID == 0 {
		return 0, fmt.Errorf("find QEMU of container %s: process %d: %w", id, info.PID, err)
	}
	list, err := processes(r.PID())
	if err != nil {
		return 0, err
	}
	for _, p := range list {
		if innermost(p.pid) == info.PID && strings.HasPrefix(p.name, "qemu-") {
			return p.pid, nil
		}
	}
	return 0, fmt.Errorf("find QEMU of container %s: the node has no process %d of QEMU", id, info.PID)
}

// forkPod runs a pod whose guest has its own address behind the pod's, and so can be saved.
func (r *rig) forkPod(ctx context.Context, name string, size int64) (*pod, error) {
	config, err := r.podConfig(name)
	if err != nil {
		return nil, err
	}
	if config.Annotations == nil {
		config.Annotations = map[string]string{}
	}
	config.Annotations[vmspec.AnnotationVMI] = forkVMI
	p, err := runPod(ctx, r.shim, config, "vm")
	if err == nil {
		p.memory = size << 20
	}
	return p, err
}

// answerPoll is the time between two tries to have a guest answer.
const answerPoll = 10 * time.Millisecond

// answers waits until the guest's agent has run a command.
func (p *pod) answers(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the guest's agent does not answer in time"))
	defer cancel()
	for {
		err := p.sh(ctx, id, ":")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(answerPoll):
		}
	}
}

// sh runs a line in a guest.
func (p *pod) sh(ctx context.Context, id, line string) error {
	reply, err := p.by.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", line}})
	if err == nil && reply.ExitCode != 0 {
		err = fmt.Errorf("%s: code %d: %s", line, reply.ExitCode, reply.Stderr)
	}
	return err
}
