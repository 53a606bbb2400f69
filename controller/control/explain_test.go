package control

import (
	"errors"
	"strings"
	"testing"
)

// TestExplain: a shim that is away is named in place of its socket alone.
func TestExplain(t *testing.T) {
	away := errors.New(`rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: ` +
		`dial unix /run/nodevirt/shim.sock: connect: connection refused"`)
	if got := explain("node1", away); !errors.Is(got, away) || !strings.Contains(got.Error(), "nodevirt-shim on node node1 does not answer, while its guests run on") {
		t.Errorf("%v", got)
	}
	other := errors.New("the guest is paused")
	if got := explain("node1", other); got != other { //nolint:errorlint // it is the very error
		t.Errorf("%v", got)
	}
}
