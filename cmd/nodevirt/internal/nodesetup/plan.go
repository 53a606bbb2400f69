package nodesetup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/journal"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/layout"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/rooted"
	"github.com/nodevirt/nodevirt/deploy"
	"github.com/nodevirt/nodevirt/shim/config"
)

const (
	shimUnit = "nodevirt-shim.service"
	// tgtdUnit serves disks over iSCSI. The shim's unit starts it.
	tgtdUnit = "nodevirt-tgtd.service"
)

// edit is a file with new text, and what that is for.
type edit struct{ path, text, why string }

// plan is what an installation changes.
type plan struct {
	layout layout.Layout
	daemon daemon
	config config.Config
	edits  []edit
	// kubelet is the last file: a kubelet that restarts meanwhile uses containerd. An upgrade leaves it.
	kubelet edit
}

// newPlan reads the node's files. programs is the folder of the shim for a node without the package
// nodevirt-node.
func newPlan(root *os.Root, programs string) (p plan, err error) {
	if p.layout, err = layout.Detect(root); err != nil {
		return p, err
	}
	p.daemon = libvirt(root)
	unit, err := read(root, "usr/lib/systemd/system/"+shimUnit)
	if err != nil {
		return p, err
	}
	if unit != "" {
		programs = programsOf(unit)
	} else {
		if _, err := rooted.Stat(root, programs+"/nodevirt-shim"); err != nil {
			return p, fmt.Errorf("find nodevirt-shim: %w; install the package nodevirt-node, or put the programs into one folder", err)
		}
		p.edits = append(p.edits,
			edit{"etc/systemd/system/" + shimUnit, placed(deploy.ShimUnit, programs), "the shim's unit"},
			edit{"etc/systemd/system/" + tgtdUnit, deploy.TgtdUnit, "disks over iSCSI, if tgtd is installed"},
			edit{"etc/systemd/system/nodevirt-.scope.d/nodevirt.conf", deploy.ScopeDropIn, "guests shut down before their node"})
	}
	shim, c, err := shimConfig(root, p.layout)
	if err != nil {
		return p, err
	}
	p.config = c
	if err := sameRuntime(root, p.layout, c); err != nil {
		return p, err
	}
	files, err := p.daemon.files(root, programs)
	if err != nil {
		return p, err
	}
	kubelet, err := p.layout.Kubelet(root, c.Listen)
	if err != nil {
		return p, err
	}
	p.edits = append(append(p.edits, shim), files...)
	p.kubelet = edit{kubelet.Path, kubelet.Text, "the kubelet calls the shim"}
	for i := range p.edits {
		if p.edits[i].path, err = rooted.Place(root, p.edits[i].path); err != nil {
			return p, err
		}
	}
	p.kubelet.path, err = rooted.Place(root, p.kubelet.path)
	return p, err
}

// sameRuntime returns an error unless the shim uses the containerd that the kubelet uses now. With another one, each pod
// would run a second time, on the same volumes, beside the first.
func sameRuntime(root *os.Root, l layout.Layout, c config.Config) error {
	socket, err := l.Runtime(root)
	if err != nil {
		return err
	}
	ours := layout.CleanSocket(c.Containerd.Address)
	if socket == ours || socket == layout.CleanSocket(c.Listen) { // the latter on a node that is set up already
		return nil
	}
	return fmt.Errorf("the kubelet uses the CRI socket %s, but the shim would use containerd at %s, where each pod would run a second time; "+
		"if %[1]s is containerd's socket, set containerd.address in /%s to it", socket, ours, configPath)
}

// all returns the edits of a first installation, in their order.
func (p plan) all() []edit { return append(slices.Clone(p.edits), p.kubelet) }

// records returns the journal's records of edits that change a file.
func records(root *os.Root, edits []edit) ([]journal.File, error) {
	var all []journal.File
	for _, e := range edits {
		f, err := journal.Plan(root, e.path, []byte(e.text))
		if err != nil {
			return nil, err
		}
		if f.Changes() {
			all = append(all, f)
		}
	}
	return all, nil
}

// print lists the changes of a first installation.
func (p plan) print(w io.Writer, files []journal.File) {
	fmt.Fprintf(w, "This node runs %s, in the unit %s.\n\n", p.layout.Name, p.layout.Unit)
	p.printFiles(w, files)
	fmt.Fprintf(w, "Services:\n  restart %s, enable and start %s, restart %s\n", p.daemon, shimUnit, p.layout.Unit)
	fmt.Fprintf(w, "Node:\n  label %s=%s\n\n", Label, labelValue)
}

func (p plan) printFiles(w io.Writer, files []journal.File) {
	fmt.Fprintln(w, "Files:")
	why := map[string]string{}
	for _, e := range p.all() {
		why[e.path] = e.why
	}
	for _, f := range files {
		verb := "change"
		if f.Before == nil {
			verb = "create"
		}
		fmt.Fprintf(w, "  %s /%s: %s\n", verb, f.Path, why[f.Path])
	}
}

// read returns a file's text, empty if there is no file.
func read(root *os.Root, name string) (string, error) {
	text, err := rooted.ReadFile(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read /%s: %w", name, err)
	}
	return string(text), nil
}
