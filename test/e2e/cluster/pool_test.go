//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// The example's pool starts three numbered guests. The one with the highest number goes first when it is
// scaled, and the last one goes with the pool.
func TestAPoolScales(t *testing.T) {
	t.Parallel()
	apply(t, "pool.yaml")
	for _, name := range []string{"pool-0", "pool-1", "pool-2"} {
		assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+name, "condition=Ready"))
		ip := kubectl(t, "get", "vmi", name, "-o", "jsonpath={.status.interfaces[0].ipAddress}")
		if got := answer(t, ip); got.Hostname != name {
			t.Errorf("%s calls itself %q", name, got.Hostname)
		}
	}
	kubectl(t, "scale", "vmpool", "pool", "--replicas=1")
	const want = "NAME   DESIRED   CURRENT   READY   AGE\npool   1         1         1       AGE\n"
	age := regexp.MustCompile(`(?m)\d\S* *$`)
	wait.Success(t, "the pool's row", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "get", "vmpool", "pool")
		if got := age.ReplaceAllString(out, "AGE"); err == nil && got != want {
			err = fmt.Errorf("%s, not\n%s", got, want)
		}
		return err
	})
	left := func(names string) {
		t.Helper()
		wait.Success(t, "VMs: "+names, func(ctx context.Context) error {
			out, err := suite.Kubectl(ctx, "get", "vm", "--selector=app=pool", "-o", "jsonpath={.items[*].metadata.name}")
			if err == nil && out != names {
				err = fmt.Errorf("there are %q", out)
			}
			return err
		})
	}
	left("pool-0")
	kubectl(t, "delete", "vmpool", "pool")
	left("")
}
