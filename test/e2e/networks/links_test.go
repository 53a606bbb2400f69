package networks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// carriers is a program for the guest, which prints whether each card has a carrier: 1 or 0.
const carriers = "#!/bin/sh\necho $(cat /sys/class/net/eth*/carrier)\n"

// unplugs takes the links from a running guest's cards of some names, and restores them.
// The guest, which a URL on another card reaches, sees its carriers go and come.
func unplugs(t *testing.T, n *node.Node, vm, url string, before, after string, names ...string) {
	t.Helper()
	_, err := n.Fetch(t.Context(), http.MethodPost, url+"cgi-bin/program", carriers)
	assert.NilError(t, err)
	for _, down := range [][]string{names, {}, names, {}} {
		order, err := json.Marshal(map[string][]string{"down": down})
		assert.NilError(t, err)
		answer, err := n.Crictl(t.Context(), "exec", vm, "nodevirt.io/link-state", string(order))
		assert.NilError(t, err)
		assert.Equal(t, strings.TrimSpace(answer), string(order))
		want := before
		if len(down) > 0 {
			want = after
		}
		wait.Success(t, "the guest's carriers", func(ctx context.Context) error {
			has, err := n.Fetch(ctx, http.MethodPost, url+"cgi-bin/run", "")
			if has = strings.TrimSpace(has); err == nil && has != want {
				err = fmt.Errorf("%q, want %q", has, want)
			}
			return err
		})
	}
}
