package backup_test

import (
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

// TestVolumeHangs: a backup to a volume that does not answer ends, whatever hangs, and the next one
// waits until the volume answers again.
func TestVolumeHangs(t *testing.T) {
	for _, access := range []string{"create", "complete", "remove", "room"} {
		t.Run(access, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				answer := r.hang(access)
				a := about("b1", "")
				a.Pull = access == "room"
				b, err := r.order(order.BackUp, a)
				assert.NilError(t, err)
				assert.Equal(t, b.State, order.BackupWriting, b.Message)
				switch access {
				case "complete":
					r.finish(nil)
				case "remove":
					_, err := r.order(order.BackupCancel, order.Name{Name: "b1"})
					assert.NilError(t, err)
				}
				time.Sleep(11 * time.Minute)
				assert.Assert(t, !r.vm.Record().BackingUp())
				b, err = r.order(order.BackUp, a)
				assert.NilError(t, err)
				assert.Equal(t, b.State, order.BackupFailed)
				_, err = r.order(order.BackUp, about("b2", ""))
				assert.ErrorContains(t, err, "the volume does not answer")
				answer()
				synctest.Wait()
				b = r.ended(t, about("b2", ""))
				assert.Equal(t, b.State, order.BackupCompleted, b.Message)
			})
		})
	}
}
