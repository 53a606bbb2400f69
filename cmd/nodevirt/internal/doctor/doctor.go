// Package doctor is the command nodevirt doctor: it finds out what this node
// lacks to run VMs.
//
// It owns the checks and their remedies. A check tries the thing itself where
// that can be done without a trace (a guest of a few instructions, a bridge in
// a network namespace that goes with it), and looks at files only where not.
package doctor

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/shim/config"
)

// Level is how bad a finding is.
type Level string

// The levels. With a failure no VM can start; with a warning they can, but not
// as they should.
const (
	OK   Level = "ok"
	Warn Level = "warning"
	Fail Level = "fail"
)

// Finding is what a check found.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Detail string `json:"detail"`
	// Remedy says what to do; empty where all is well.
	Remedy string `json:"remedy,omitempty"`
}

// check is one look at the node.
type check struct {
	name string
	do   func(context.Context, config.Config) Finding
}

// checks are in the order in which a node is set up.
func checks() []check {
	return []check{
		{"privileges", checkRoot},
		{"QEMU", checkQEMU},
		{"qemu-img", checkQemuImg},
		{"accelerator", checkAccelerator},
		{"libvirtd", checkLibvirtd},
		{"qemu.conf", checkQEMUConf},
		{"libvirtd's restart", checkRestart},
		{"host name", checkHostname},
		{"users", checkUsers},
		{"user ids", checkUIDs},
		{"tgtd", checkTgtd},
		{"QEMU's iSCSI", checkInitiator},
		{"dnsmasq", checkDnsmasq},
		{"nft", checkNft},
		{"kernel network", checkKernelNetwork},
		{"cgroups", checkCgroups},
		{"root folder", checkRootFolder},
		{"containerd", checkContainerd},
		{"CNI", checkCNI},
		{"shim", checkShim},
	}
}

// checkTime bounds a check: something that hangs is a finding, too.
const checkTime = 5 * time.Second

func ok(format string, args ...any) Finding {
	return Finding{Level: OK, Detail: fmt.Sprintf(format, args...)}
}

func warn(remedy, format string, args ...any) Finding {
	return Finding{Level: Warn, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

func fail(remedy, format string, args ...any) Finding {
	return Finding{Level: Fail, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

// Command is nodevirt doctor.
func Command() *cobra.Command {
	var (
		file   string
		format cli.Format
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what this node lacks to run VMs",
		Long: `Checks what VMs need on this node, each with its remedy: an accelerator that
really runs guest code, QEMU, libvirt and its settings, dnsmasq, nft, the kernel's
network devices, cgroups, containerd and CNI, and the shim itself. Nothing is
changed on the node.

The exit code is 1 if a VM could not start; warnings alone leave it 0.`,
		Example: `  sudo nodevirt doctor
  sudo nodevirt doctor --config /etc/nodevirt/shim.toml
  sudo nodevirt doctor -o json | jq '.[] | select(.level != "ok")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := config.Load(file, func(*config.Config) error { return nil })
			if err != nil {
				return err
			}
			found := examine(cmd.Context(), c, cmd.ErrOrStderr())
			if err := cmd.Context().Err(); err != nil {
				return fmt.Errorf("interrupted")
			}
			if format.String() == "json" {
				err = cli.JSON(cmd.OutOrStdout(), found)
			} else {
				err = table(cmd.OutOrStdout(), found)
			}
			if err == nil && failed(found) {
				return &cli.ExitError{Code: 1}
			}
			return err
		},
	}
	cli.ConfigFlag(cmd, &file)
	cli.OutputFlag(cmd, &format, "table", "json")
	return cmd
}

func examine(ctx context.Context, c config.Config, progress io.Writer) []Finding {
	var found []Finding
	for _, k := range checks() {
		done := cli.Spin(progress, "check "+k.name)
		f := bounded(ctx, k, c)
		done()
		f.Check = k.name
		found = append(found, f)
	}
	return found
}

// bounded gives a check up that does not end with its context.
func bounded(ctx context.Context, k check, c config.Config) Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	found := make(chan Finding, 1)
	go func() { found <- k.do(ctx, c) }()
	select {
	case f := <-found:
		return f
	case <-time.After(checkTime + time.Second):
		return fail("see why it hangs, and start it again", "no answer within %s", checkTime)
	}
}

func failed(found []Finding) bool {
	for _, f := range found {
		if f.Level == Fail {
			return true
		}
	}
	return false
}

func table(w io.Writer, found []Finding) error {
	rows := [][]string{{"CHECK", "RESULT", "DETAIL"}}
	var remedies []string
	fails, warnings := 0, 0
	for _, f := range found {
		rows = append(rows, []string{f.Check, string(f.Level), strings.ReplaceAll(f.Detail, "\n", "; ")})
		switch f.Level {
		case Fail:
			fails++
		case Warn:
			warnings++
		case OK:
			continue
		}
		remedies = append(remedies, fmt.Sprintf("  %s: %s\n", f.Check, f.Remedy))
	}
	if err := cli.Table(w, rows); err != nil {
		return err
	}
	if len(remedies) > 0 {
		fmt.Fprintf(w, "\nWhat to do:\n%s", strings.Join(remedies, ""))
	}
	switch {
	case fails > 0:
		fmt.Fprintf(w, "\nNo VM can start on this node: %d failed, %s.\n", fails, count(warnings))
	case warnings > 0:
		fmt.Fprintf(w, "\nVMs can start on this node, with %s.\n", count(warnings))
	default:
		fmt.Fprint(w, "\nVMs can start on this node.\n")
	}
	return nil
}

func count(warnings int) string {
	if warnings == 1 {
		return "1 warning"
	}
	return fmt.Sprintf("%d warnings", warnings)
}
