package hotplug_test

import (
	"context"
	"errors"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func (d *domains) SetLinks(_ context.Context, _ string, cards []vmspec.Interface) error {
	done, err := d.enter()
	if err != nil {
		return err
	}
	defer done()
	d.down = nil
	for _, c := range cards {
		if c.Unplugged {
			d.down = append(d.down, c.Name)
		}
	}
	return nil
}

// TestLinks: the record and QEMU have the links of an order, which may be repeated after a failure.
func TestLinks(t *testing.T) {
	r := newRig(t)
	set := func(change func(*record.Container)) {
		t.Helper()
		c, _ := r.store.Container("c")
		change(&c)
		assert.NilError(t, r.store.PutContainer(c))
		r.start(t)
	}
	set(func(c *record.Container) { c.Spec.Interfaces = []vmspec.Interface{{Name: "default"}, {Name: "lan"}} })
	link := func(argument string) (string, error) {
		answer, err := r.Do(t.Context(), r.vm, order.Link, argument)
		return string(answer), err
	}
	for range 2 {
		answer, err := link(`{"down": ["lan"]}`)
		assert.NilError(t, err)
		assert.Equal(t, answer, "{\"down\":[\"lan\"]}\n")
		assert.DeepEqual(t, r.down, []string{"lan"})
	}
	cards := r.vm.Record().Spec.Interfaces
	assert.Assert(t, !cards[0].Unplugged && cards[1].Unplugged)

	r.away = true
	_, err := link(`{"down": ["default"]}`)
	assert.ErrorIs(t, err, domain.ErrUnavailable)
	r.away = false
	answer, err := link(`{"down": ["default"]}`)
	assert.NilError(t, err)
	assert.Equal(t, answer, "{\"down\":[\"default\"]}\n")
	assert.DeepEqual(t, r.down, []string{"default"})
	answer, err = link(`{"down": []}`)
	assert.NilError(t, err)
	assert.Equal(t, answer, "{\"down\":[]}\n")
	assert.Equal(t, len(r.down), 0)

	_, err = link(`{"down": ["vf"]}`)
	assert.ErrorIs(t, err, vmerrors.ErrInvalid)
	r.moving = true
	_, err = link(`{"down": ["lan"]}`)
	assert.ErrorIs(t, err, vmerrors.ErrState)
	r.moving = false
	saved := r.vm.Record()
	saved.Saving = &record.Saving{}
	r.vm.Publish(saved)
	_, err = link(`{"down": ["lan"]}`)
	assert.ErrorIs(t, err, vmerrors.ErrState)
	set(func(c *record.Container) { c.State = record.Exited })
	if _, err = link(`{"down": ["lan"]}`); !errors.Is(err, vmerrors.ErrState) || len(r.down) > 0 {
		t.Errorf("of a VM that has ended: %v", err)
	}
}
