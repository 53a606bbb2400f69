package nodesetup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/host"
	"github.com/nodevirt/nodevirt/shim/config"
)

const shimSocket = "/run/nodevirt/nodevirt.sock"

// errKilled is the panic of a call at which the process is killed.
var errKilled = errors.New("killed")

// fake is a node whose kubelet reads its file when it starts: it is ready if the socket there is
// served, and reports the handler of VMs if the socket is the shim's.
type fake struct {
	dir, kubeletFile, kubeletUnit string

	// calls counts the calls that change the node. The call numbered failAt fails, the one numbered
	// killAt ends the process.
	calls, failAt, killAt int
	log                   []string

	shimEnabled, shimRuns, kubeletRuns bool
	// tgtdRuns and limited are what a shim that starts brings along.
	tgtdRuns, limited bool
	// kubeletReads is the kubelet's file as of its last start.
	kubeletReads string
	labels       map[string]string
	running      map[string]string
	vms          []string
	broken       bool // the kubelet never becomes ready with the shim
	stops        bool // a container stops when the kubelet restarts
	unfit        error
	handlers     []string // those of others
}

func (f *fake) change(what string) error {
	f.calls++
	f.log = append(f.log, what)
	switch f.calls {
	case f.killAt:
		panic(errKilled)
	case f.failAt:
		return fmt.Errorf("%s fails", what)
	}
	return nil
}

func (f *fake) Check(context.Context, config.Config) error { return f.unfit }

func (f *fake) Systemctl(_ context.Context, args ...string) error {
	what := strings.Join(args, " ")
	if err := f.change(what); err != nil {
		return err
	}
	switch what {
	case "enable " + shimUnit:
		f.shimEnabled = true
	case "disable " + shimUnit:
		f.shimEnabled = false
	case "restart " + shimUnit:
		f.shimRuns, f.tgtdRuns, f.limited = true, true, true
	case "stop " + shimUnit:
		f.shimRuns = false
	case "stop " + tgtdUnit:
		f.tgtdRuns = false
	case "stop " + f.kubeletUnit:
		f.kubeletRuns = false
	case "restart " + f.kubeletUnit:
		text, err := os.ReadFile(filepath.Join(f.dir, f.kubeletFile))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		f.kubeletReads, f.kubeletRuns = string(text), true
		if f.stops {
			delete(f.running, "c1")
		}
	}
	return nil
}

func (f *fake) Stop(ctx context.Context, unit string) error { return f.Systemctl(ctx, "stop", unit) }

func (f *fake) Unlimit(context.Context) error {
	if f.shimRuns {
		return errors.New("the shim would restore the table")
	}
	if err := f.change("remove the table"); err != nil {
		return err
	}
	f.limited = false
	return nil
}

func (f *fake) Enabled(context.Context, string) bool { return f.shimEnabled }

func (f *fake) usesShim() bool { return strings.Contains(f.kubeletReads, shimSocket) }

func (f *fake) Status(context.Context, string) (host.Status, error) {
	st := host.Status{Ready: f.kubeletRuns, Message: "PLEG is not healthy", Heartbeat: time.Now(), Labels: f.labels, Handlers: f.handlers}
	if f.usesShim() {
		st.Handlers = []string{"", "vm"}
		st.Ready = f.kubeletRuns && f.shimRuns && !f.broken
	}
	return st, nil
}

func (f *fake) SetLabel(_ context.Context, _, name string, value *string) error {
	if err := f.change("label"); err != nil {
		return err
	}
	if value == nil {
		delete(f.labels, name)
	} else {
		f.labels[name] = *value
	}
	return nil
}

func (f *fake) Running(context.Context, string) (map[string]string, error) {
	return maps.Clone(f.running), nil
}

func (f *fake) Failed(context.Context, string, string) (bool, error) { return true, nil }

func (f *fake) VMs(context.Context, string) ([]string, error) {
	if !f.shimRuns {
		return nil, errors.New("no shim")
	}
	return f.vms, nil
}

func (f *fake) RemoveVMs(context.Context, string) error {
	if f.kubeletRuns {
		return errors.New("the kubelet would create them again")
	}
	f.vms = nil
	return f.change("remove VMs")
}
