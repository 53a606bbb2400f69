//go:build cluster && slow

package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// The image's size, of which nothing can be compressed, and the most that a VM of it may take on a node's disk
// with all that belongs to it: overlay, records, logs, sandbox.
const (
	imageSize = 64 << 20
	ownSize   = 1 << 20
)

// stored is what is on a node's disk.
type stored struct {
	all int64             // bytes that are allocated to files
	big map[string]string // files that take at least an image's size, and how much
	own map[string]int64  // bytes of the folder of each replica's container
}

// Fifty replicas of an image take its place once on each node, as the first one did: in containerd, as the
// layer that was pulled and the file that it was unpacked to, from which all machines read. It runs alone,
// as others would write to the disk.
func TestFiftyReplicasShareAnImage(t *testing.T) {
	const replicas = 50
	ref := pushHalted(t)
	undo(t, func(ctx context.Context) error {
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vmirs,pods", "--selector=app=many")
			t.Log(about)
		}
		_, err := suite.Kubectl(ctx, "delete", "vmirs", "many", "--ignore-not-found", "--cascade=foreground")
		return err
	})
	labels := object{"app": "many"}
	spec := strangersVMI("", func(spec, domain, _ object) {
		spec["terminationGracePeriodSeconds"] = 0 // it knows no power button
		spec["topologySpreadConstraints"] = []object{{
			"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
			"labelSelector": object{"matchLabels": labels},
		}}
		domain["memory"] = object{"guest": "16Mi"}
		domain["resources"] = object{"requests": object{"cpu": "10m"}}
		spec["volumes"].([]object)[0]["containerDisk"] = object{"image": ref}
	})["spec"]
	assert.NilError(t, create(t.Context(), object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
		"metadata": object{"name": "many", "labels": labels},
		"spec": object{
			"replicas": 2, "selector": object{"matchLabels": labels},
			"template": object{"metadata": object{"labels": labels}, "spec": spec},
		},
	}))
	halted(t, 2)
	first := map[string]stored{}
	for n, ids := range containersOf(t, "app=many") {
		first[n.Name()] = measure(t, n, ids)
	}
	if len(first) != len(suite.Nodes()) {
		t.Fatalf("two replicas are on %d nodes", len(first))
	}
	kubectl(t, "scale", "vmirs", "many", fmt.Sprintf("--replicas=%d", replicas))
	halted(t, replicas)
	read := imagesOf(t, "app=many")
	for n, ids := range containersOf(t, "app=many") {
		before, now := first[n.Name()], measure(t, n, ids)
		vms := len(now.own) - len(before.own)
		grown, most := now.all-before.all, slices.Max(slices.AppendSeq([]int64{0}, maps.Values(now.own)))
		t.Logf("%s: %d more VMs take %d KiB more on disk, the largest folder of one %d KiB; of the image there are %v",
			n.Name(), vms, grown>>10, most>>10, now.big)
		// The layer and the file.
		if vms != replicas/2-1 || len(before.big) != 2 || !maps.Equal(before.big, now.big) {
			t.Errorf("on %s %d more VMs have the large files %v, the first one %v", n.Name(), vms, now.big, before.big)
		}
		if most > ownSize || grown > int64(vms)*ownSize {
			t.Errorf("on %s %d more VMs take %d bytes, one %d", n.Name(), vms, grown, most)
		}
		if len(read[n.Name()]) != 1 {
			t.Errorf("on %s the replicas read %d files of one image: %v", n.Name(), len(read[n.Name()]), read[n.Name()])
		}
	}
}

// pushHalted pushes a guest that says a word and sleeps, on a disk that is full.
func pushHalted(t *testing.T) (ref string) {
	t.Helper()
	disk := make([]byte, imageSize)
	_, _ = rand.Read(disk) // it never fails
	copy(disk, guest.BootSector("halted", guest.Halt)[:512])
	path := filepath.Join(t.TempDir(), "halted.img")
	assert.NilError(t, os.WriteFile(path, disk, 0o600))
	img, err := images.RegistryDisk(path, images.DiskOptions{})
	assert.NilError(t, err)
	ref, err = suite.Push(t.Context(), "halted:1", img)
	assert.NilError(t, err)
	return ref
}

// halted waits until so many replicas have said their word.
func halted(t *testing.T, n int) {
	t.Helper()
	assert.NilError(t, suite.WaitFor(t.Context(), "vmirs/many", fmt.Sprintf("jsonpath={.status.readyReplicas}=%d", n), "--timeout=10m"))
	wait.Success(t, fmt.Sprintf("the word of %d guests", n), func(ctx context.Context) error {
		log, err := suite.Kubectl(ctx, "logs", "--selector=app=many", "--tail=-1")
		if said := strings.Count(log, "halted"); err == nil && said != n {
			err = fmt.Errorf("%d of %d have said it", said, n)
		}
		return err
	})
}

// measure walks through all that a node keeps. Other tests' containers may just be going.
func measure(t *testing.T, n *node.Node, replicas []string) stored {
	t.Helper()
	s := stored{big: map[string]string{}, own: map[string]int64{}}
	vms := filepath.Join(n.Dir(), "nodevirt", "containers") + "/"
	seen := map[uint64]bool{}
	err := filepath.WalkDir(n.Dir(), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.Type().IsRegular() {
			return nil
		}
		var info fs.FileInfo
		if err == nil {
			info, err = e.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was just removed
		}
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || seen[stat.Ino] {
			return nil
		}
		seen[stat.Ino] = true
		size := stat.Blocks * 512
		s.all += size
		if size >= imageSize {
			s.big[path] = fmt.Sprint(size>>20, " MiB")
		}
		if rest, in := strings.CutPrefix(path, vms); in {
			id, _, _ := strings.Cut(rest, "/")
			if slices.Contains(replicas, id) {
				s.own[id] += size
			}
		}
		return nil
	})
	assert.NilError(t, err)
	return s
}
