// Package doctor implements the command nodevirt doctor, which checks whether
// this node can run VMs.
//
// It owns the checks, their verdicts and their remedies. A check tries the
// operation itself if that leaves no trace (it boots a guest of a few
// instructions, and creates a bridge in a network namespace that ends with the
// check). Otherwise it reads files. It changes nothing on the node, and leaves
// all repairs to the administrator.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/shim/config"
)

// Level is the verdict of a check.
type Level string

// The levels. Fail means that no VM can start. Lost means that guests run that the shim or libvirt has lost. Warn means that VMs can start,
// but that something is slow, insecure or unavailable.
const (
	OK   Level = "ok"
	Warn Level = "warning"
	Fail Level = "fail"
	Lost Level = "lost"
)

// Finding is the result of a check.
type Finding struct {
	Check  string `json:"check"`
	Level  Level  `json:"level"`
	Detail string `json:"detail"`
	// Remedy says what the administrator should do; empty if Level is OK.
	Remedy string `json:"remedy,omitempty"`
}

// check examines one aspect of the node.
type check struct {
	name string
	do   func(context.Context, config.Config) Finding
	// limit bounds the check; 0 is checkTime.
	limit time.Duration
	// optional says that VMs can start even if the check does not end in time.
	optional bool
	// installed says that nodevirt node install makes the check pass.
	installed bool
}

// privileges is the check that other checks' verdicts depend on.
const privileges = "privileges"

// checks returns all checks in the order in which a node is set up.
func checks() []check {
	return []check{
		{name: privileges, do: checkRoot, optional: true},
		{name: "QEMU", do: checkQEMU},
		{name: "qemu-img", do: checkQemuImg},
		{name: "accelerator", do: checkAccelerator, limit: accelerationTime},
		{name: "libvirtd", do: checkLibvirtd, limit: activationTime},
		{name: "qemu.conf", do: checkQEMUConf, installed: true},
		{name: "libvirtd's restart", do: checkRestart, optional: true, installed: true},
		{name: "libvirtd's sockets", do: checkReadOnlySocket, optional: true, installed: true},
		{name: "guests' shutdown", do: checkShutdown, optional: true},
		{name: "host name", do: checkHostname, optional: true},
		{name: "users", do: checkAccounts},
		{name: "user ids", do: checkUIDs, optional: true},
		{name: "tgtd", do: checkTgtd, optional: true},
		{name: "QEMU's iSCSI", do: checkInitiator, optional: true},
		{name: "qemu-storage-daemon", do: checkStorageDaemon, optional: true},
		{name: "dnsmasq", do: checkDnsmasq},
		{name: "nft", do: checkNft},
		{name: "kernel network", do: checkKernelNetwork},
		{name: "VMs' reach", do: checkReach, optional: true, installed: true},
		{name: "VMs' files", do: checkLandlock, optional: true, installed: true},
		{name: "cgroups", do: checkCgroups},
		{name: "root folder", do: checkRootFolder},
		{name: "containerd", do: checkContainerd},
		{name: "CNI", do: checkCNI},
		{name: "shim", do: checkShim, installed: true},
		{name: "snapshotter", do: checkSnapshotter},
		{name: "sandbox handler", do: checkSandboxHandler},
		{name: "kubeconfig", do: checkKubeconfig, optional: true, installed: true},
		{name: "guests", do: checkGuests, optional: true},
		{name: "kubelet", do: checkKubelet, installed: true},
	}
}

// checkTime bounds a check, so that a component that hangs is a finding too.
const checkTime = 5 * time.Second

// activationTime is more than libvirtd's first answer takes where a socket of systemd starts it: first it
// looks at what each QEMU can do.
const activationTime = 60 * time.Second

func ok(format string, args ...any) Finding {
	return Finding{Level: OK, Detail: fmt.Sprintf(format, args...)}
}

func warn(remedy, format string, args ...any) Finding {
	return Finding{Level: Warn, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

func fail(remedy, format string, args ...any) Finding {
	return Finding{Level: Fail, Detail: fmt.Sprintf(format, args...), Remedy: remedy}
}

// Command returns the command nodevirt doctor.
func Command() *cobra.Command {
	var (
		file   string
		format cli.Format
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this node can run VMs",
		Long: `Checks what VMs need on this node, and prints a remedy for each problem: an
accelerator that runs guest code, QEMU, libvirt and its settings, dnsmasq, nft, the
kernel's network devices, cgroups, containerd and CNI, and the shim itself. doctor
changes nothing on the node.

The exit code is 1 if VMs cannot start, or if guests run that libvirt or the shim has
lost. Warnings alone leave it 0.`,
		Example: `  sudo nodevirt doctor
  sudo nodevirt doctor --config /etc/nodevirt/nodevirt-shim.toml
  sudo nodevirt doctor -o json | jq '.[] | select(.level != "ok")'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := findable(file); file != "" && err != nil {
				return fmt.Errorf("read the config file: %w", err)
			}
			c, given := readConfig(cmp.Or(file, present(defaultConfig)))
			found := append([]Finding{given}, examine(cmd.Context(), c, cmd.ErrOrStderr(), checks())...)
			if err := cmd.Context().Err(); err != nil {
				return fmt.Errorf("interrupted")
			}
			var err error
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
	cmd.Flags().Lookup("config").Usage = "the shim's config `file` (default " + defaultConfig + ", if it is there)"
	cli.OutputFlag(cmd, &format, "table", "json")
	return cmd
}

// BeforeInstallation runs the checks whose remedy is not nodevirt node install itself.
func BeforeInstallation(ctx context.Context, c config.Config, progress io.Writer) []Finding {
	return examine(ctx, c, progress, slices.DeleteFunc(checks(), func(k check) bool { return k.installed }))
}

func examine(ctx context.Context, c config.Config, progress io.Writer, checks []check) []Finding {
	var found []Finding
	for _, k := range checks {
		done := cli.Spin(progress, "check "+k.name)
		f := bounded(ctx, k, c)
		done()
		f.Check = k.name
		found = append(found, f)
	}
	return found
}

// bounded runs a check, and abandons it if it does not end when its time is up.
func bounded(ctx context.Context, k check, c config.Config) Finding {
	limit := cmp.Or(k.limit, checkTime)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found := make(chan Finding, 1)
	go func() { found <- k.do(ctx, c) }()
	select {
	case f := <-found:
		if f.Level == OK || ctx.Err() == nil {
			return f
		}
	case <-time.After(limit + time.Second):
	}
	late := fail
	if k.optional {
		late = warn
	}
	return late("see why it hangs, and restart it; on a busy node, run doctor again", "no answer within %s", limit)
}

func failed(found []Finding) bool {
	for _, f := range found {
		if f.Level == Fail || f.Level == Lost {
			return true
		}
	}
	return false
}

func table(w io.Writer, found []Finding) error {
	rows := [][]string{{"CHECK", "RESULT", "DETAIL"}}
	var remedies []string
	fails, warnings, lost := 0, 0, false
	for _, f := range found {
		rows = append(rows, []string{f.Check, string(f.Level), strings.ReplaceAll(f.Detail, "\n", "; ")})
		switch f.Level {
		case Fail:
			fails++
		case Lost:
			lost = true
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
	if lost {
		fmt.Fprint(w, "\nGuests run on this node that libvirt or the shim has lost. Their disks stay in use until they end.\n")
	}
	switch {
	case fails > 0 && !privileged(found):
		fmt.Fprintf(w, "\nNot known whether VMs can start on this node, without root: %d failed, %s.\n", fails, count(warnings))
	case fails > 0:
		fmt.Fprintf(w, "\nNo VM can start on this node: %d failed, %s.\n", fails, count(warnings))
	case lost:
	case warnings > 0:
		fmt.Fprintf(w, "\nVMs can start on this node, with %s.\n", count(warnings))
	default:
		fmt.Fprint(w, "\nVMs can start on this node.\n")
	}
	return nil
}

// privileged reports whether the checks ran with the rights that they need.
func privileged(found []Finding) bool {
	return !slices.ContainsFunc(found, func(f Finding) bool { return f.Check == privileges && f.Level != OK })
}

func count(warnings int) string {
	if warnings == 1 {
		return "1 warning"
	}
	return fmt.Sprintf("%d warnings", warnings)
}
