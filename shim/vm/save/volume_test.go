package save_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func (r *rig) volume() string { return filepath.Join(r.dir, "volume") }

func (r *rig) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest, ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	info, err := json.Marshal(map[string]any{"sandboxID": "hp", "config": &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "volumes"},
		Mounts:   []*runtimeapi.Mount{{ContainerPath: "/volumes/memory", HostPath: r.volume()}},
	}})
	return &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING}, Info: map[string]string{"info": string(info)},
	}, err
}

func (r *rig) PodSandboxStatus(context.Context, *runtimeapi.PodSandboxStatusRequest, ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "hp", Namespace: "default"}, State: runtimeapi.PodSandboxState_SANDBOX_READY,
		Annotations: map[string]string{order.Annotation: "1"},
	}}, nil
}

// order gives an order, and returns the state in the answer.
func (r *rig) order(t *testing.T, control string, argument any) order.Saved {
	t.Helper()
	text, err := json.Marshal(argument)
	assert.NilError(t, err)
	reply, err := r.Do(t.Context(), r.vm, control, string(text))
	assert.NilError(t, err)
	var s order.Saved
	assert.NilError(t, json.Unmarshal(reply, &s))
	return s
}

func (r *rig) saves(t *testing.T, disks ...string) order.Saved {
	t.Helper()
	return r.order(t, order.MemorySave, order.Save{Volume: "memory", Container: strings.Repeat("a", 64), Disks: disks, Begin: true})
}

// inVolume runs a test with a VM that has a disk on a PVC, in a bubble.
func inVolume(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		assert.NilError(t, os.Mkdir(r.volume(), 0o700))
		rec := r.vm.Record()
		rec.Spec.Disks = append(slices.Clone(rec.Spec.Disks), vmspec.Disk{Name: "claim", Source: vmspec.SourcePVC, Bus: vmspec.BusVirtio, Target: "vdc"})
		assert.NilError(t, r.table.Put(r.vm, rec))
		test(t, r)
	})
}

// left returns the names in the volume.
func (r *rig) left(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir(r.volume())
	assert.NilError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// TestToVolume: the guest is held for the snapshot of its PVC as long as orders come, and the
// archive has its name when it is complete.
func TestToVolume(t *testing.T) {
	inVolume(t, func(t *testing.T, r *rig) {
		assert.Equal(t, r.saves(t, "claim").State, order.SaveHeld)
		assert.Equal(t, strings.Join(r.said(), " "), "pause memory")
		for range 5 {
			time.Sleep(5 * time.Second)
			assert.Equal(t, r.saves(t, "claim").State, order.SaveHeld)
		}
		assert.Equal(t, r.left(t), "checkpoint.tar.partial")
		assert.Equal(t, r.order(t, order.MemorySaveEnd, order.Name{Name: "memory"}).State, order.SaveCompleted)
		assert.Equal(t, strings.Join(r.said(), " "), "pause memory resume resume") // the end makes sure
		assert.Equal(t, r.left(t), "checkpoint.tar")
		for range 2 { // it is complete, whatever is asked
			assert.Equal(t, r.saves(t, "claim").State, order.SaveCompleted)
		}
		a, err := checkpoint.OpenArchive(filepath.Join(r.volume(), "checkpoint.tar"))
		assert.NilError(t, err)
		defer func() { _ = a.Close() }()
		m, err := checkpoint.Read(a)
		assert.NilError(t, err)
		assert.DeepEqual(t, m.Volumes, []string{"claim"})
		assert.Equal(t, len(m.Disks), 2)
		assert.Equal(t, r.order(t, order.MemorySave, order.Save{Volume: "other"}).State, order.SaveNone)
	})
}

// TestWithoutDisks: a guest without disks on PVCs goes on at once.
func TestWithoutDisks(t *testing.T) {
	inVolume(t, func(t *testing.T, r *rig) {
		rec := r.vm.Record()
		rec.Spec.Disks = rec.Spec.Disks[:2]
		r.vm.Publish(rec)
		assert.Equal(t, r.saves(t).State, order.SaveCompleted)
		assert.Equal(t, strings.Join(r.said(), " "), "pause memory resume resume")
	})
}

// TestLease: a guest whose controller is gone goes on within ten seconds, and nothing is left of
// the save. Its failure is reported once; then another save can begin.
func TestLease(t *testing.T) {
	inVolume(t, func(t *testing.T, r *rig) {
		assert.Equal(t, r.saves(t, "claim").State, order.SaveHeld)
		time.Sleep(10 * time.Second)
		assert.Equal(t, r.said()[len(r.said())-1], "resume")
		assert.Equal(t, r.left(t), "")
		failed := r.saves(t, "claim")
		assert.Equal(t, failed.State, order.SaveFailed)
		assert.Assert(t, strings.Contains(failed.Message, "no order held the guest"), failed.Message)
		assert.Equal(t, r.order(t, order.MemorySave, order.Save{Volume: "memory"}).State, order.SaveNone)
		assert.Equal(t, r.saves(t, "claim").State, order.SaveHeld)
		assert.Equal(t, r.order(t, order.MemorySaveEnd, order.Name{Name: "memory"}).State, order.SaveCompleted)
	})
}

// TestLeaseOfSlowWrite: neither a slow node nor a volume that does not answer keeps a guest paused
// without its controller.
func TestLeaseOfSlowWrite(t *testing.T) {
	inVolume(t, func(t *testing.T, r *rig) {
		r.stuck = make(chan struct{})
		defer close(r.stuck)
		assert.Equal(t, r.saves(t, "claim").State, order.SaveWriting)
		time.Sleep(10 * time.Second)
		assert.Equal(t, r.said()[len(r.said())-1], "resume")
		assert.Equal(t, r.order(t, order.MemorySave, order.Save{Volume: "memory"}).State, order.SaveFailed)
		assert.Equal(t, r.left(t), "")
	})
}

// TestEndedEarly: a save that is ended before it is complete fails at once.
func TestEndedEarly(t *testing.T) {
	inVolume(t, func(t *testing.T, r *rig) {
		r.stuck = make(chan struct{})
		defer close(r.stuck)
		assert.Equal(t, r.saves(t, "claim").State, order.SaveWriting)
		ended := r.order(t, order.MemorySaveEnd, order.Name{Name: "memory"})
		assert.Equal(t, ended.State, order.SaveFailed)
		assert.Assert(t, strings.Contains(ended.Message, "before it was complete"), ended.Message)
		assert.Equal(t, r.said()[len(r.said())-1], "resume")
		assert.Equal(t, r.left(t), "")
	})
}

// TestVolumeFailures: a save that fails leaves no archive.
func TestVolumeFailures(t *testing.T) {
	for words, set := range map[string]func(r *rig){
		"no space left": func(r *rig) { r.fail["memory"] = errors.New("no space left on device") },
		"is moving":     func(r *rig) { r.moving = true },
	} {
		inVolume(t, func(t *testing.T, r *rig) {
			set(r)
			s := r.saves(t, "claim")
			if s.State != order.SaveFailed || !strings.Contains(s.Message, words) {
				t.Errorf("%+v; want %q", s, words)
			}
			assert.Equal(t, r.left(t), "")
			if r.vm.Record().Saving != nil {
				t.Error("the VM is still being saved")
			}
		})
	}
}

// TestVolumeRefused: a disk on a volume of which the caller takes no snapshot, and orders that are none.
func TestVolumeRefused(t *testing.T) {
	inVolume(t, func(t *testing.T, r *rig) {
		for argument, words := range map[string]string{
			`{"volume": "memory", "begin": true}`:                     `disk "claim" is on a volume`,
			`{"volume": "../x", "begin": true}`:                       "not the name of a volume",
			`{"volume": "memory", "disks": ["claim"], "begin": true}`: "not a container's id",
			`[]`: "not JSON",
		} {
			_, err := r.Do(t.Context(), r.vm, order.MemorySave, argument)
			assert.ErrorContains(t, err, words)
		}
		assert.Equal(t, len(r.said()), 0)
	})
}
