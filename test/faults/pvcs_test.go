//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/records"
	"github.com/nodevirt/nodevirt/test/wait"
)

// pvcs are a VM's PVCs, as the kubelet gives them to the shim, and what guests flushed to all of them.
type pvcs struct {
	image  string // with guest.TinyWithVirtiofs
	device string // a block volume
	files  string // a file system for a disk
	share  string // a file system for virtiofs
	records.Flushed
}

// pvcsVMI boots from its image, and has the three volumes.
const pvcsVMI = `{
	"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "block", "disk": {"bus": "virtio"}},
			{"name": "files", "disk": {"bus": "virtio"}}, {"name": "seed", "cdrom": {"bus": "scsi"}}],
		"filesystems": [{"name": "share", "virtiofs": {}}]}},
	"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "block", "persistentVolumeClaim": {"claimName": "a"}},
		{"name": "files", "persistentVolumeClaim": {"claimName": "b"}}, {"name": "share", "persistentVolumeClaim": {"claimName": "c"}},
		{"name": "seed", "cloudInitNoCloud": {"userData": "password: ` + password + `"}}]}`

func newPVCs(t *testing.T) *pvcs {
	t.Helper()
	disk, err := guest.TinyWithVirtiofs(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	c := &pvcs{device: loopfs.Device(t, records.DiskBytes), files: t.TempDir(), share: t.TempDir()}
	c.image, err = pushDisk(t.Context(), "tiny-virtiofs:1", disk)
	assert.NilError(t, err)
	return c
}

// pod is a new pod with a VM on the PVCs.
func (c *pvcs) pod(name string, iscsi bool) (*pod, error) {
	p, err := newPod(name, c.image, 128<<20)
	if err != nil {
		return nil, err
	}
	p.config.Annotations = map[string]string{
		vmspec.AnnotationVMI: pvcsVMI, vmspec.AnnotationBlankDisks: "files=" + strconv.Itoa(records.DiskBytes),
	}
	if iscsi {
		p.overISCSI()
	}
	p.guest.Devices = []*runtimeapi.Device{{ContainerPath: "/dev/block", HostPath: c.device, Permissions: "mrw"}}
	p.guest.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/volumes/files", HostPath: c.files}, {ContainerPath: "/volumes/share", HostPath: c.share},
	}
	return p, nil
}

// boots starts a pod's VM, and returns what asks its guest once the guest has mounted the share.
func (c *pvcs) boots(t *testing.T, r *round) records.Ask {
	t.Helper()
	r.does(t, life[:started]...)
	ip, err := r.address(t.Context())
	assert.NilError(t, err)
	wait.Success(t, "the guest has its program", func(ctx context.Context) error {
		_, err := suite.Fetch(ctx, http.MethodPost, "http://"+ip+"/cgi-bin/program", records.Program)
		return err
	})
	ask := func(ctx context.Context, input string) (string, error) {
		return suite.Fetch(ctx, http.MethodPost, "http://"+ip+"/cgi-bin/run", input)
	}
	_, err = ask(t.Context(), records.Mount)
	assert.NilError(t, err)
	return ask
}

// kept returns an error if a volume does not hold what guests flushed.
func (c *pvcs) kept() error {
	return errors.Join(c.On(c.device), c.On(filepath.Join(c.files, "disk.img")), c.InShare(c.share))
}

// pvcVictims are killed while a guest writes to its volumes.
var pvcVictims = []string{
	node.Shim, node.Shim, node.Shim, node.Libvirtd, node.Libvirtd, node.Containerd, ownQEMU, ownVirtiofsd,
}

func newPVCsPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 1))
	p := plan{seed: seed, calls: life, iscsi: r.IntN(2) == 0}
	for n := 1 + r.IntN(3); len(p.kills) < n; {
		if v := pvcVictims[r.IntN(len(pvcVictims))]; !p.hasVictim(v) {
			p.kills = append(p.kills, kill{v, time.Duration(r.IntN(1500)) * time.Millisecond})
		}
	}
	slices.SortFunc(p.kills, func(a, b kill) int { return int(a.after - b.after) })
	return p
}

// TestPVCs kills what a VM on PVCs depends on while its guest writes. What the guest flushed is on the volumes,
// and the next VM can use them. Each of its rounds takes as long as several of TestRounds.
func TestPVCs(t *testing.T) {
	assert.NilError(t, converge(t.Context(), sameSecrets(suite.secrets)))
	c := newPVCs(t)
	before, err := suite.Leftovers(t.Context())
	assert.NilError(t, err)
	size, err := shimSize(t.Context())
	assert.NilError(t, err)
	for i := range uint64(*rounds+3) / 4 {
		p := newPVCsPlan(*seed + i)
		t.Run(fmt.Sprint(p.seed), func(t *testing.T) {
			c.round(t, &round{plan: p, before: before, size: size})
			for _, ask := range []func(context.Context) error{asBefore(before), sameSecrets(suite.secrets), noGrowth(size), discreet} {
				if err := converge(t.Context(), ask); err != nil {
					t.Error(err)
				}
			}
			if t.Failed() {
				t.Logf("%v\nagain: make test-faults FLAGS=-run=TestPVCs ROUNDS=1 SEED=%d\n%s", p.kills, p.seed, suite.LogTail(node.Shim, 25))
			}
		})
	}
}

// round writes, breaks the plan's parts meanwhile, and has the next VM read.
func (c *pvcs) round(t *testing.T, r *round) {
	c.Reset()
	var err error
	r.begun = time.Now()
	r.pod, err = c.pod(fmt.Sprintf("pvcs-%d", r.seed), r.iscsi)
	assert.NilError(t, err)
	defer removed(t, r)
	ask := c.boots(t, r)
	c.breaksWhileWriting(t, r, ask)
	for _, g := range suite.steady {
		assert.NilError(t, converge(t.Context(), g.lives))
	}
	assert.NilError(t, converge(t.Context(), suite.served.keeps))
	assert.NilError(t, r.remove(t.Context()))
	assert.NilError(t, c.kept())
	t.Logf("%v: %d records", r.kills, c.Count())
	c.next(t, r)
}

// next starts another VM on the volumes, which reads what is there and writes more.
func (c *pvcs) next(t *testing.T, r *round) {
	t.Helper()
	p, err := c.pod(fmt.Sprintf("pvcs-next-%d", r.seed), r.iscsi)
	assert.NilError(t, err)
	next := &round{plan: r.plan, pod: p, begun: time.Now()}
	defer removed(t, next)
	ask := c.boots(t, next)
	assert.NilError(t, c.ReadBack(t.Context(), ask))
	assert.NilError(t, c.Write(t.Context(), ask, c.Count()+3))
	assert.NilError(t, next.remove(t.Context()))
	assert.NilError(t, c.kept())
}

// removed removes a pod also if a test fails.
func removed(t *testing.T, r *round) {
	t.Helper()
	if err := r.remove(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

// breaksWhileWriting kills the plan's victims while the guest writes, and returns when it writes again or, if it
// lost its QEMU or its virtiofsd, has ended and is reported so.
func (c *pvcs) breaksWhileWriting(t *testing.T, r *round, ask records.Ask) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	written := make(chan error, 1)
	go func() { written <- c.Write(ctx, ask, records.Most) }()
	begun := time.Now()
	var down []string
	var errs []error
	for _, k := range r.kills {
		time.Sleep(time.Until(begun.Add(k.after)))
		isDown, err := r.kill(t.Context(), k.victim, *r.pod)
		if isDown {
			down = append(down, k.victim)
		}
		errs = append(errs, err)
	}
	assert.NilError(t, errors.Join(append(errs, resume(t.Context(), down...))...))
	if r.hasVictim(ownQEMU) || r.hasVictim(ownVirtiofsd) {
		c.ended(t, r)
		stop()
		<-written // the request that the VM's end cut off has failed
	} else {
		from := c.Count()
		wait.Success(t, "the guest writes on", func(context.Context) error {
			select {
			case err := <-written:
				written <- err
				t.Fatalf("the guest wrote %d records: %v", c.Count(), err)
			default:
			}
			if c.Count() < from+3 {
				return errors.New("no more records")
			}
			return nil
		})
		stop()
		assert.NilError(t, <-written)
	}
}

// ended waits until a VM that lost QEMU or virtiofsd has ended, and looks at the reason.
func (c *pvcs) ended(t *testing.T, r *round) {
	t.Helper()
	var s *runtimeapi.ContainerStatus
	wait.Success(t, "the VM's end", func(ctx context.Context) error {
		reply, err := suite.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: r.container})
		if s = reply.GetStatus(); err == nil && s.State != runtimeapi.ContainerState_CONTAINER_EXITED {
			err = fmt.Errorf("the container is %s", s.State)
		}
		return err
	})
	if s.ExitCode != 137 || s.Reason != "Error" {
		t.Errorf("the container ended with %d, %q: %s", s.ExitCode, s.Reason, s.Message)
	}
	if !r.hasVictim(ownQEMU) && !strings.Contains(s.Message, "virtiofsd ended unexpectedly, and the VM was stopped") {
		t.Errorf("message %q", s.Message)
	}
}
