package networks

import (
	"context"
	"encoding/json"
	"fmt"
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

// plugVMI is a VM with the pod's network alone.
const plugVMI = `{
	"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio"}}],
		"interfaces": [{"name": "default", "masquerade": {}}]
	}},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [{"name": "root", "containerDisk": {"image": ""}}]
}`

// newCard is a program for the guest, which asks for an address on a card that came.
const newCard = "#!/bin/sh\nip link set eth1 up && udhcpc -n -q -i eth1 -s /etc/dhcp -t 10 -T 1 -O 26 && cat /sys/class/net/eth1/mtu\n"

// pluggedCard is the answer to an order about a card.
type pluggedCard struct {
	Name, State, MAC string
	IPs              []string
}

// TestPluggedCards: a running guest gets a card on the network of another pod, with that pod's address, keeps it
// when the shim restarts, and loses it again. Nothing is left in the other pod, also if the VM ends with the card.
func TestPluggedCards(t *testing.T) {
	ctx, n := t.Context(), shared
	disk, err := guest.Tiny(ctx, n.GuestOptions())
	assert.NilError(t, err)
	image, err := images.RegistryDisk(disk, images.DiskOptions{})
	assert.NilError(t, err)
	ref, err := n.Push(ctx, "plugged:1", image)
	assert.NilError(t, err)
	busybox, err := n.PushBusybox(ctx)
	assert.NilError(t, err)
	p := n.NewPod("plugged")
	p["annotations"] = map[string]string{"nodevirt.io/vmi": plugVMI}
	p["linux"].(map[string]any)["overhead"] = map[string]any{"memory_limit_in_bytes": 256 * mebibyte}
	id, err := n.RunPod(ctx, p, "vm")
	assert.NilError(t, err)
	c := node.NewContainer("guest", ref)
	c["linux"] = map[string]any{"resources": map[string]any{"memory_limit_in_bytes": 128 * mebibyte}}
	vm, err := n.CreateContainer(ctx, id, p, c)
	assert.NilError(t, err)
	_, err = n.Crictl(ctx, "start", vm)
	assert.NilError(t, err)
	url, _ := podURL(t, n, id)
	fetch(t, n, url)

	other := n.NewPod("attachment")
	other["annotations"] = map[string]string{"nodevirt.io/attachment": p["metadata"].(map[string]any)["uid"].(string)}
	otherID, err := n.RunPod(ctx, other, "")
	assert.NilError(t, err)
	_, last := podURL(t, n, otherID)
	h := node.NewContainer("holder", busybox)
	h["command"] = []string{"sleep", "1000000"}
	holder, err := n.CreateContainer(ctx, otherID, other, h)
	assert.NilError(t, err)
	_, err = n.Crictl(ctx, "start", holder)
	assert.NilError(t, err)
	before, err := n.Leftovers(ctx)
	assert.NilError(t, err)

	order := func(control, argument string) (answer pluggedCard) {
		t.Helper()
		text, err := n.Crictl(ctx, "exec", vm, "nodevirt.io/"+control, argument)
		assert.NilError(t, err)
		assert.NilError(t, json.Unmarshal([]byte(text), &answer))
		return answer
	}
	attach := fmt.Sprintf(`{"interface": {"name": "lan", "bridge": {}, "macAddress": "02:00:00:00:00:61"}, "container": %q, "device": "net1"}`, holder)
	want := pluggedCard{Name: "lan", State: "attached", MAC: "02:00:00:00:00:61", IPs: []string{"10.98.1." + last}}
	run := func(program string) string {
		t.Helper()
		_, err := n.Fetch(ctx, http.MethodPost, url+"cgi-bin/program", program)
		assert.NilError(t, err)
		answer, err := n.Fetch(ctx, http.MethodPost, url+"cgi-bin/run", "")
		assert.NilError(t, err)
		return strings.TrimSpace(answer)
	}
	has := func(is bool) {
		t.Helper()
		wait.Until(t, fmt.Sprintf("the guest's second card, %t", is), func() bool {
			text, err := n.Fetch(ctx, http.MethodGet, url+"cgi-bin/info", "")
			var info struct{ Interfaces []card }
			return err == nil && json.Unmarshal([]byte(text), &info) == nil &&
				slices.ContainsFunc(info.Interfaces, func(c card) bool { return c.MAC == want.MAC }) == is
		})
	}
	for round := range 2 {
		assert.DeepEqual(t, order("card-attach", attach), want)
		has(true)
		answer := run(newCard)
		assert.Equal(t, answer[strings.LastIndex(answer, "\n")+1:], "1280")
		for _, restart := range []bool{round == 0, false} {
			page := fetch(t, n, "http://10.98.1."+last+"/")
			assert.Assert(t, strings.HasPrefix(page, "ip=10.0.2.2"), page)
			if restart {
				assert.NilError(t, n.Restart(ctx, "shim"))
				assert.DeepEqual(t, order("card-attach", attach), want)
			}
		}
		inspected, err := n.Output(ctx, "nodevirt", "inspect", vm)
		assert.NilError(t, err)
		assert.Assert(t, strings.Contains(inspected, "lan") && strings.Contains(inspected, want.MAC), inspected)
		if round == 0 {
			_, err := n.Crictl(ctx, "exec", vm, "nodevirt.io/link-state", `{"down": ["lan"]}`)
			assert.NilError(t, err)
			wait.Until(t, "the card to lose its link", func() bool { return run("#!/bin/sh\ncat /sys/class/net/eth1/carrier\n") == "0" })
			assert.DeepEqual(t, order("card-detach", `{"name": "lan"}`), pluggedCard{Name: "lan", State: "none"})
			has(false)
			wait.Success(t, "nothing is left of the card", func(ctx context.Context) error {
				after, err := n.Leftovers(ctx)
				if err != nil {
					return err
				}
				left := slices.DeleteFunc(after.Diff(before), func(line string) bool { // the shim was restarted
					return strings.Contains(line, " process ") && !strings.Contains(line, "dnsmasq")
				})
				if len(left) > 0 {
					err = fmt.Errorf("left: %v", left)
				}
				return err
			})
		}
	}
	_, err = n.Crictl(ctx, "stop", vm) // with the card
	assert.NilError(t, err)
	assert.NilError(t, n.RemovePod(ctx, id, p))
	assert.NilError(t, n.RemovePod(ctx, otherID, other))
}
