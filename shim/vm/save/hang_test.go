package save_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

// turn checks that the VM's turn is free, as a stop needs it.
func (r *rig) turn(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	unlock, err := r.vm.Lock(ctx)
	assert.NilError(t, err)
	unlock()
}

// TestVolumeHangs: a volume that does not answer keeps neither the guest nor the VM's turn, whatever
// hangs, and the VM is not being saved for ever.
func TestVolumeHangs(t *testing.T) {
	for _, access := range []string{"create", "remove", "rename"} {
		inVolume(t, func(t *testing.T, r *rig) {
			answer := r.hang(access)
			s := r.saves(t, "claim")
			if access == "create" {
				assert.Equal(t, s.State, order.SaveWriting)
			} else {
				assert.Equal(t, s.State, order.SaveHeld)
			}
			if access == "rename" {
				r.order(t, order.MemorySaveEnd, order.Name{Name: "memory"})
			}
			synctest.Wait()
			r.turn(t)
			time.Sleep(11 * time.Minute)
			r.turn(t)
			assert.Assert(t, r.vm.Record().Saving == nil)
			if said := r.said(); slices.Contains(said, "pause") {
				assert.Equal(t, said[len(said)-1], "resume")
			}
			assert.Equal(t, r.order(t, order.MemorySave, order.Save{Volume: "memory"}).State, order.SaveFailed)
			text, err := json.Marshal(order.Save{Volume: "memory", Container: strings.Repeat("a", 64), Disks: []string{"claim"}, Begin: true})
			assert.NilError(t, err)
			_, err = r.Do(t.Context(), r.vm, order.MemorySave, string(text))
			assert.ErrorContains(t, err, "the volume does not answer")
			answer()
			synctest.Wait()
			assert.Equal(t, r.saves(t, "claim").State, order.SaveHeld)
			assert.Equal(t, r.order(t, order.MemorySaveEnd, order.Name{Name: "memory"}).State, order.SaveCompleted)
			assert.Equal(t, r.left(t), "checkpoint.tar")
		})
	}
}

// TestSuspendHangs: a guest whose archive may have its name already goes on, and the VM counts as being
// saved until that archive is gone: another pod could go on from it.
func TestSuspendHangs(t *testing.T) {
	inVolume(t, func(t *testing.T, r *rig) {
		answer, removed := r.hang("rename"), r.hang("remove")
		assert.Equal(t, r.suspends(t).State, order.SaveWriting)
		for range 20 {
			time.Sleep(10 * time.Second)
			r.turn(t)
		}
		assert.Equal(t, r.said()[len(r.said())-1], "resume")
		assert.Assert(t, r.vm.Record().Saving.Renaming)
		answer()
		synctest.Wait()
		assert.Equal(t, r.left(t), "checkpoint.tar")
		removed()
		time.Sleep(time.Minute)
		assert.Equal(t, r.left(t), "")
		assert.Assert(t, r.vm.Record().Saving == nil)
	})
}

// TestRemovedMeanwhile: the end of a save of a VM that has been removed leaves no archive, and is not
// retried for ever.
func TestRemovedMeanwhile(t *testing.T) {
	inVolume(t, func(t *testing.T, r *rig) {
		r.fail["resume"] = domain.ErrUnavailable
		assert.Equal(t, r.saves(t, "claim").State, order.SaveHeld)
		time.Sleep(8 * time.Second) // the lease has ended, and libvirtd did not resume the guest
		synctest.Wait()
		unlock, err := r.vm.Lock(t.Context())
		assert.NilError(t, err)
		ended := r.vm.Record()
		ended.State = record.Exited
		assert.NilError(t, r.table.Put(r.vm, ended))
		assert.NilError(t, r.table.Remove(r.vm))
		unlock()
		calls := len(r.said())
		time.Sleep(time.Minute)
		assert.Equal(t, r.left(t), "")
		assert.Equal(t, len(r.said()), calls)
		r.tasks.Stop()
	})
	r := newRig(t)
	r.during = func(context.Context) error { // as when the pod is removed by force
		ended := r.vm.Record()
		ended.State = record.Exited
		r.vm.Publish(ended)
		return errors.Join(r.table.Remove(r.vm), errors.New("QEMU has ended"))
	}
	err := r.Checkpoint(t.Context(), r.vm.Record().ID, r.location(), 0)
	assert.ErrorContains(t, err, "QEMU has ended")
	assert.Assert(t, !strings.Contains(err.Error(), "removed meanwhile"), err)
}
