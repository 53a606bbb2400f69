//go:build faults

package faults

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// Records are what guests write. Disks have room for mostRecords.
const (
	recordBytes = 4 << 10
	mostRecords = 2 << 10
	volumeBytes = recordBytes * mostRecords
)

// pvcs are a VM's PVCs, as the kubelet gives them to the shim, and what guests wrote to all of them: the records
// from 0 on, each flushed before its request was answered.
type pvcs struct {
	image  string // with guest.TinyWithVirtiofs
	device string // a block volume
	files  string // a file system for a disk
	share  string // a file system for virtiofs
	acked  atomic.Int64
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

// keeper is the guest's program. Its input begins with a line that says what to do up to which record.
const keeper = `#!/bin/sh
export PATH=/bin
set -e
read -r action n
case $action in
mount) mkdir -p /share; mount -t virtiofs share /share ;;
write)
	cat >/run/record
	for disk in vdb vdc; do dd if=/run/record of=/dev/$disk bs=4k seek=$n conv=notrunc,fsync 2>/dev/null; done
	dd if=/run/record of=/share/$n bs=4k conv=fsync 2>/dev/null
	;;
digest)
	for disk in vdb vdc; do dd if=/dev/$disk bs=4k count=$n 2>/dev/null | sha256sum; done
	i=0
	while [ $i -lt $n ]; do cat /share/$i; i=$((i + 1)); done | sha256sum
	;;
esac
`

func newPVCs(t *testing.T) *pvcs {
	t.Helper()
	disk, err := guest.TinyWithVirtiofs(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	c := &pvcs{device: loopfs.Device(t, volumeBytes), files: t.TempDir(), share: t.TempDir()}
	c.image, err = pushDisk(t.Context(), "tiny-virtiofs:1", disk)
	assert.NilError(t, err)
	return c
}

// record is the nth.
func record(n int64) string {
	return strings.Repeat(fmt.Sprintf("record %8d\n", n), recordBytes/16)
}

// pod is a new pod with a VM on the PVCs.
func (c *pvcs) pod(name string, iscsi bool) (*pod, error) {
	p, err := newPod(name, c.image, 128<<20)
	if err != nil {
		return nil, err
	}
	p.config.Annotations = map[string]string{
		vmspec.AnnotationVMI: pvcsVMI, vmspec.AnnotationBlankDisks: "files=" + strconv.Itoa(volumeBytes),
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

// boots starts a pod's VM, and returns the URL of its guest's program once the guest has mounted the share.
func (c *pvcs) boots(t *testing.T, r *round) (url string) {
	t.Helper()
	r.does(t, life[:started]...)
	ip, err := r.address(t.Context())
	assert.NilError(t, err)
	wait.Success(t, "the guest has its program", func(ctx context.Context) error {
		_, err := suite.Fetch(ctx, http.MethodPost, "http://"+ip+"/cgi-bin/program", keeper)
		return err
	})
	url = "http://" + ip + "/cgi-bin/run"
	_, err = suite.Fetch(t.Context(), http.MethodPost, url, "mount\n")
	assert.NilError(t, err)
	return url
}

// write has a guest write records until there are as many as wanted, or ctx ends.
func (c *pvcs) write(ctx context.Context, url string, upTo int64) error {
	for n := c.acked.Load(); n < upTo; n++ {
		_, err := suite.Fetch(ctx, http.MethodPost, url, fmt.Sprintf("write %d\n%s", n, record(n)))
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the request was cut off
		case err != nil:
			return fmt.Errorf("write record %d: %w", n, err)
		}
		c.acked.Store(n + 1)
	}
	return nil
}

// wanted are all records that guests flushed.
func (c *pvcs) wanted() []byte {
	var all bytes.Buffer
	for n := range c.acked.Load() {
		all.WriteString(record(n))
	}
	return all.Bytes()
}

// kept returns an error if a volume does not hold what guests flushed.
func (c *pvcs) kept() error {
	want := c.wanted()
	var errs []error
	for _, path := range []string{c.device, filepath.Join(c.files, "disk.img")} {
		got := make([]byte, len(want))
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = f.ReadAt(got, 0)
		_ = f.Close() // it was only read
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("%s lost some of %d records", path, c.acked.Load())
		}
		errs = append(errs, err)
	}
	for n := range c.acked.Load() {
		got, err := os.ReadFile(filepath.Join(c.share, strconv.FormatInt(n, 10)))
		if err == nil && string(got) != record(n) {
			err = fmt.Errorf("the share's record %d is %d bytes long, or another", n, len(got))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// readBack has a guest read what those before it flushed.
func (c *pvcs) readBack(t *testing.T, url string) {
	t.Helper()
	got, err := suite.Fetch(t.Context(), http.MethodPost, url, fmt.Sprintf("digest %d\n", c.acked.Load()))
	assert.NilError(t, err)
	want := fmt.Sprintf("%x  -\n", sha256.Sum256(c.wanted()))
	if got != strings.Repeat(want, 3) {
		t.Errorf("the digests of %d records on vdb, vdc and the share are\n%swant %s", c.acked.Load(), got, want)
	}
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
	c.acked.Store(0)
	var err error
	r.begun = time.Now()
	r.pod, err = c.pod(fmt.Sprintf("pvcs-%d", r.seed), r.iscsi)
	assert.NilError(t, err)
	defer removed(t, r)
	url := c.boots(t, r)
	c.breaksWhileWriting(t, r, url)
	for _, g := range suite.steady {
		assert.NilError(t, converge(t.Context(), g.lives))
	}
	assert.NilError(t, converge(t.Context(), suite.served.keeps))
	assert.NilError(t, r.remove(t.Context()))
	assert.NilError(t, c.kept())
	t.Logf("%v: %d records", r.kills, c.acked.Load())
	c.next(t, r)
}

// next starts another VM on the volumes, which reads what is there and writes more.
func (c *pvcs) next(t *testing.T, r *round) {
	t.Helper()
	p, err := c.pod(fmt.Sprintf("pvcs-next-%d", r.seed), r.iscsi)
	assert.NilError(t, err)
	next := &round{plan: r.plan, pod: p, begun: time.Now()}
	defer removed(t, next)
	url := c.boots(t, next)
	c.readBack(t, url)
	assert.NilError(t, c.write(t.Context(), url, min(c.acked.Load()+3, mostRecords)))
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
func (c *pvcs) breaksWhileWriting(t *testing.T, r *round, url string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	written := make(chan error, 1)
	go func() { written <- c.write(ctx, url, mostRecords) }()
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
		from := c.acked.Load()
		wait.Success(t, "the guest writes on", func(context.Context) error {
			select {
			case err := <-written:
				written <- err
				t.Fatalf("the guest wrote %d records: %v", c.acked.Load(), err)
			default:
			}
			if c.acked.Load() < from+3 {
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
