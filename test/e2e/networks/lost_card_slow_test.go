//go:build slow

package networks

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestLostCard: a running guest loses a card that it started with, also while the shim restarts. Its other card works on, and
// the pod's next VM starts with both.
func TestLostCard(t *testing.T) {
	ctx, n := t.Context(), shared
	disk, err := guest.Tiny(ctx, n.GuestOptions())
	assert.NilError(t, err)
	image, err := images.RegistryDisk(disk, images.DiskOptions{})
	assert.NilError(t, err)
	ref, err := n.Push(ctx, "lost:1", image)
	assert.NilError(t, err)
	p := n.NewPod("lost")
	vmi := strings.Replace(plugVMI, `"masquerade": {}}`, `"masquerade": {}}, {"name": "own", "bridge": {}, "macAddress": "02:00:00:00:00:62"}`, 1)
	vmi = strings.Replace(vmi, `"pod": {}}`, `"pod": {}}, {"name": "own", "multus": {"networkName": "net1"}}`, 1)
	p["annotations"] = map[string]string{"nodevirt.io/vmi": vmi}
	p["linux"].(map[string]any)["overhead"] = map[string]any{"memory_limit_in_bytes": 256 * mebibyte}
	id, err := n.RunPod(ctx, p, "vm")
	assert.NilError(t, err)
	url, _ := podURL(t, n, id)
	cards := func() (all []string) {
		t.Helper()
		wait.Until(t, "the guest's cards", func() bool {
			text, err := n.Fetch(ctx, http.MethodGet, url+"cgi-bin/info", "")
			var info struct{ Interfaces []card }
			if err != nil || json.Unmarshal([]byte(text), &info) != nil {
				return false
			}
			all = nil
			for _, c := range info.Interfaces {
				all = append(all, c.MAC)
			}
			return true
		})
		return all
	}
	for range 2 {
		c := node.NewContainer("guest", ref)
		c["linux"] = map[string]any{"resources": map[string]any{"memory_limit_in_bytes": 128 * mebibyte}}
		vm, err := n.CreateContainer(ctx, id, p, c)
		assert.NilError(t, err)
		_, err = n.Crictl(ctx, "start", vm)
		assert.NilError(t, err)
		fetch(t, n, url)
		assert.Assert(t, slices.Contains(cards(), "02:00:00:00:00:62"), cards())
		order := func(control string) (answer pluggedCard) {
			t.Helper()
			text, err := n.Crictl(ctx, "exec", vm, "nodevirt.io/"+control, `{"name": "own"}`)
			assert.NilError(t, err)
			assert.NilError(t, json.Unmarshal([]byte(text), &answer))
			return answer
		}
		assert.Equal(t, order("card-status").State, "attached")
		assert.DeepEqual(t, order("card-detach"), pluggedCard{Name: "own", State: "none"})
		assert.Assert(t, !slices.Contains(cards(), "02:00:00:00:00:62"), cards())
		assert.NilError(t, n.Restart(ctx, "shim"))
		assert.DeepEqual(t, order("card-status"), pluggedCard{Name: "own", State: "none"})
		inspected, err := n.Output(ctx, "nodevirt", "inspect", vm)
		assert.NilError(t, err)
		assert.Assert(t, !strings.Contains(inspected, "02:00:00:00:00:62"), inspected)
		_, err = n.Crictl(ctx, "stop", vm)
		assert.NilError(t, err)
		_, err = n.Crictl(ctx, "rm", vm)
		assert.NilError(t, err)
	}
	assert.NilError(t, n.RemovePod(ctx, id, p))
}
