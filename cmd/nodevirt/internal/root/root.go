// Package root assembles the commands of the program nodevirt, and writes its man
// pages. It leaves the commands themselves to their packages.
package root

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/convert"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/disks"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/doctor"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/image"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/run"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/vms"
)

// Command returns the command nodevirt with all subcommands.
func Command(version string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nodevirt",
		Short: "Manage the virtual machines on this node",
		Long: `nodevirt manages the virtual machines that run as pods on this node, builds the
images that they boot from, and checks whether the node can run them.`,
		Example: `  nodevirt doctor
  nodevirt image build debian-12.qcow2 -t example.com/disks/debian:12
  nodevirt run example.com/disks/debian:12 --name web --memory 1Gi
  nodevirt ps`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetVersionTemplate("nodevirt {{.Version}}\n")
	cmd.AddGroup(&cobra.Group{ID: "vms", Title: "Virtual machines:"}, &cobra.Group{ID: "node", Title: "Images and the node:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			cmd.AddCommand(c)
		}
	}
	add("vms", run.Command(), vms.PSCommand(), vms.InspectCommand(), vms.ConsoleCommand(), vms.VNCCommand(), vms.RmCommand(), convert.Command())
	add("node", image.Command(), disks.Command(), doctor.Command(), nodesetup.Command())
	cmd.AddCommand(manCommand())
	for _, c := range cmd.Commands() {
		refuse(c)
	}
	return cmd
}

// refuse makes a command and its subcommands report wrong arguments as an error
// that shows the usage. By default cobra prints the help for an unknown subcommand,
// without an error.
func refuse(cmd *cobra.Command) {
	if !cmd.Runnable() {
		cmd.Use, cmd.DisableFlagsInUseLine, cmd.Args = cmd.Use+" COMMAND", true, cobra.NoArgs
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return fmt.Errorf("%w: want %q; see %q", err, cmd.UseLine(), cmd.CommandPath()+" --help")
			}
			return nil
		}
	}
	for _, c := range cmd.Commands() {
		refuse(c)
	}
}

// manCommand writes the man pages; packages call it.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the man pages into a folder",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			top := cmd.Root()
			top.DisableAutoGenTag = true
			date := time.Unix(0, 0).UTC() // fixed, so that builds are reproducible
			return doc.GenManTree(top, &doc.GenManHeader{Section: "8", Source: "nodevirt", Manual: "nodevirt", Date: &date}, args[0])
		},
	}
}
