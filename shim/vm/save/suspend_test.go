package save_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

func (r *rig) suspends(t *testing.T) order.Saved {
	t.Helper()
	return r.order(t, order.MemorySave, order.Save{Volume: "memory", Container: strings.Repeat("a", 64), Begin: true, Suspend: true})
}

// TestSuspend: the guest ends once its archive is complete, also if libvirtd answers late or the shim
// restarts, and never goes on.
func TestSuspend(t *testing.T) {
	inVolume(t, func(t *testing.T, r *rig) {
		r.fail["destroy"] = errors.New("libvirtd does not answer")
		assert.Equal(t, r.suspends(t).State, order.SaveCompleted)
		assert.Equal(t, strings.Join(r.said(), " "), "pause memory destroy")
		time.Sleep(time.Minute)
		assert.Equal(t, strings.Join(r.said(), " "), "pause memory destroy destroy")
		assert.Equal(t, r.left(t), "checkpoint.tar")
		if as := r.vm.Record().Saving; as == nil || !as.Complete {
			t.Errorf("record %+v", as)
		}
		r.Recover()
		time.Sleep(time.Minute)
		assert.Equal(t, r.said()[len(r.said())-1], "destroy")
		ended := r.vm.Record()
		ended.State = record.Exited
		assert.NilError(t, r.table.Put(r.vm, ended))
		before := len(r.said())
		r.Recover()
		time.Sleep(time.Minute)
		assert.Equal(t, len(r.said()), before)
		assert.Equal(t, r.left(t), "checkpoint.tar")
		a, err := checkpoint.OpenArchive(filepath.Join(r.volume(), "checkpoint.tar"))
		assert.NilError(t, err)
		defer func() { _ = a.Close() }()
		m, err := checkpoint.Read(a)
		assert.NilError(t, err)
		assert.DeepEqual(t, m.Volumes, []string{"claim"})
	})
}

// TestSuspendFails: a guest that could not be saved goes on, and nothing is left from which it could go
// on elsewhere.
func TestSuspendFails(t *testing.T) {
	for words, set := range map[string]func(r *rig){
		"no space left": func(r *rig) { r.fail["memory"] = errors.New("no space left on device") },
		"the guest ended": func(r *rig) {
			r.stuck = make(chan struct{})
			go func() {
				time.Sleep(time.Second)
				ended := r.vm.Record()
				ended.State = record.Exited
				r.vm.Publish(ended)
				time.Sleep(time.Millisecond) // the save notices the end before the write returns
				close(r.stuck)
			}()
		},
	} {
		inVolume(t, func(t *testing.T, r *rig) {
			set(r)
			s := r.suspends(t)
			if s.State != order.SaveFailed || !strings.Contains(s.Message, words) {
				t.Errorf("%+v; want %q", s, words)
			}
			time.Sleep(time.Minute)
			assert.Equal(t, r.left(t), "")
			if as := r.vm.Record().Saving; as != nil {
				t.Errorf("%s: record %+v", words, as)
			}
			if said := strings.Join(r.said(), " "); strings.Contains(said, "destroy") {
				t.Errorf("%s: %s", words, said)
			}
		})
	}
	inVolume(t, func(t *testing.T, r *rig) { // its controller is gone
		r.stuck = make(chan struct{})
		defer close(r.stuck)
		assert.Equal(t, r.suspends(t).State, order.SaveWriting)
		time.Sleep(10 * time.Second)
		assert.Equal(t, r.said()[len(r.said())-1], "resume")
		assert.Equal(t, r.left(t), "")
	})
}
