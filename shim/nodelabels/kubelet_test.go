package nodelabels

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// TestSilentKubelet: a node whose kubelet no longer calls gets no VMs until it calls again. A kubelet that restarts is
// not silent.
func TestSilentKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewKubelet("/run/nodevirt/nodevirt.sock")
		source := k.Source(func(context.Context) (domain.Capabilities, error) {
			return domain.Capabilities{Vendor: "AMD"}, nil
		})
		check := func(want string) {
			t.Helper()
			c, err := source(t.Context())
			if want == "" && (err != nil || c.Vendor != "AMD") {
				t.Errorf("%+v, %v", c, err)
			}
			if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("error %v, not %q", err, want)
			}
		}
		check("")
		time.Sleep(40 * time.Second)
		check("")
		time.Sleep(time.Minute)
		check("set its CRI endpoint to unix:///run/nodevirt/nodevirt.sock")
		k.Hear()
		check("")
	})
}
