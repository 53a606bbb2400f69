package record

import (
	"encoding/json"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestLosingCard: a card that a VM loses takes its part of the network along, and the former record stays as it is.
func TestLosingCard(t *testing.T) {
	before := Container{
		ID:      "vm",
		Network: &netsetup.Plan{ID: "vm", NICs: []netsetup.NIC{{Card: "default"}, {Card: "own"}, {Card: "more"}}},
	}
	for _, n := range before.Network.NICs {
		before.Spec.Interfaces = append(before.Spec.Interfaces, vmspec.Interface{Name: n.Card})
	}
	r, found := before.LosingCard("own")
	assert.Assert(t, found)
	assert.Equal(t, len(before.Spec.Interfaces)+len(before.Network.NICs)+len(before.Cards), 6)
	text, err := json.Marshal(r)
	assert.NilError(t, err)
	r = Container{}
	assert.NilError(t, json.Unmarshal(text, &r))
	assert.Equal(t, r.FindCard("own"), 0)
	assert.Equal(t, r.Cards[0].State, Detaching)
	assert.Equal(t, r.Cards[0].Network.NICs[0].Card, "own")
	assert.Assert(t, r.SharesNetwork(r.Cards[0]))
	assert.Equal(t, len(r.NICs()), 3)
	r = r.WithoutCard("own")
	assert.Equal(t, len(r.Interfaces()), 2)
	for _, name := range []string{"own", "none"} {
		_, found = r.LosingCard(name)
		assert.Assert(t, !found)
	}
	for _, name := range []string{"default", "more"} {
		r, found = r.LosingCard(name)
		assert.Assert(t, found)
	}
	assert.Assert(t, r.Network == nil && !r.SharesNetwork(r.Cards[0]))
	assert.Equal(t, len(r.Networks()), 2)
}
