//go:build cluster && away

package cluster

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

var away = flag.Duration("away", time.Minute, "how long the API server is away in TestTheAPIServerIsAway, which waits for nothing else")

const apiServer = "kube-apiserver"

// The API server goes for a while, say a minute, under VMs that run, start, stop and power off. Guests
// that run don't notice; what was asked for before, or happened meanwhile, has its effect afterwards, once.
func TestTheAPIServerIsAway(t *testing.T) {
	suite.disturbed = true
	const kept, stays, ends, stops, starts = "away-kept", "away-stays", "away-ends", "away-stops", "away-starts"
	removeAfter(t, "vm/"+kept, "vmi/"+stays, "vmi/"+ends, "vmi/"+stops, "vmi/"+starts)
	assert.NilError(t, create(t.Context(), machineOf(kept)))
	for _, name := range []string{stays, ends, stops} {
		assert.NilError(t, create(t.Context(), instanceOf(name)))
	}
	address, before := map[string]string{}, map[string]info{}
	for _, name := range []string{kept, stays, ends, stops} {
		assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.phase}=Running"))
		address[name] = kubectl(t, "get", "vmi", name, "-o", "jsonpath={.status.interfaces[0].ipAddress}")
		before[name] = answer(t, address[name])
	}
	kubectl(t, "delete", "vmi", stops, "--wait=false")
	assert.NilError(t, create(t.Context(), instanceOf(starts)))

	assert.NilError(t, suite.Control().Kill(t.Context(), apiServer, syscall.SIGKILL))
	back := time.After(*away)
	for _, name := range []string{kept, ends} { // by their guests' own doing
		_, err := suite.Control().Fetch(t.Context(), "GET", "http://"+address[name]+"/cgi-bin/poweroff", "")
		assert.NilError(t, err)
	}
	<-back
	if got := directly(t, address[stays]); got.BootID != before[stays].BootID {
		t.Errorf("while the API server was away: %+v, before: %+v", got, before[stays])
	}
	assert.NilError(t, suite.Control().Resume(t.Context(), apiServer))

	for object, condition := range map[string]string{
		"vmi/" + stays: "jsonpath={.status.phase}=Running", "vmi/" + starts: "jsonpath={.status.phase}=Running",
		"vmi/" + ends: "jsonpath={.status.phase}=Succeeded", "vm/" + kept: "jsonpath={.status.printableStatus}=Running",
	} {
		assert.NilError(t, suite.WaitFor(t.Context(), object, condition))
	}
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+kept, "jsonpath={.status.phase}=Running"))
	wait.Success(t, "the end of "+stops, func(ctx context.Context) error { return gone(ctx, "vmi", stops) })
	if got := answer(t, address[stays]); got.BootID != before[stays].BootID {
		t.Errorf("with the API server again: %+v, before: %+v", got, before[stays])
	}
	// Another instance, and with it another boot.
	next := kubectl(t, "get", "vmi", kept, "-o", "jsonpath={.status.interfaces[0].ipAddress}")
	if got := answer(t, next); got.BootID == before[kept].BootID {
		t.Errorf("the guest of %s did not end: %+v", kept, got)
	}
	wait.Success(t, "one machine for each VM that runs", func(ctx context.Context) error {
		return machines(ctx, map[string]int{kept: 1, stays: 1, starts: 1, ends: 0, stops: 0})
	})
}

// removeAfter removes objects when the test ends, with what there is to know of them if it failed.
func removeAfter(t *testing.T, objects ...string) {
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "get", "nodes,vm,vmi,pods", "-A", "-o", "wide")
			t.Log(about)
		}
		for _, o := range objects {
			if _, err := suite.Kubectl(ctx, "delete", o, "--ignore-not-found"); err != nil {
				t.Error(err)
			}
		}
	})
}

// directly asks a guest without the cluster's help.
func directly(t *testing.T, address string) (i info) {
	t.Helper()
	page, err := suite.Control().Fetch(t.Context(), "GET", "http://"+address+"/cgi-bin/info", "")
	assert.NilError(t, err)
	assert.NilError(t, json.Unmarshal([]byte(page), &i))
	return i
}

func gone(ctx context.Context, kind, name string) error {
	out, err := suite.Kubectl(ctx, "get", kind, name, "--ignore-not-found", "-o", "name")
	if err == nil && out != "" {
		err = fmt.Errorf("%s is still there", strings.TrimSpace(out))
	}
	return err
}

// machines counts the machines of VMs on all nodes.
func machines(ctx context.Context, want map[string]int) error {
	have := map[string]int{}
	for _, n := range suite.Nodes() {
		domains, err := n.Output(ctx, "virsh", "list", "--all", "--name")
		if err != nil {
			return err
		}
		for domain := range strings.FieldsSeq(domains) {
			for name := range want {
				if strings.HasPrefix(domain, "default_virt-launcher-"+name+"-") {
					have[name]++
				}
			}
		}
	}
	for name, n := range want {
		if have[name] != n {
			return fmt.Errorf("%d machines of %s, want %d", have[name], name, n)
		}
	}
	return nil
}
