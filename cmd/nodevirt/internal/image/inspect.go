package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/imageunpack"
)

// inspect is the command nodevirt image inspect.
type inspect struct {
	path, containerd, config, snapshotter string

	maxSize          int64 // of a disk, in bytes
	insecure, remote bool
	format           cli.Format
	out, errOut      io.Writer
}

func inspectCommand() *cobra.Command {
	var i inspect
	cmd := &cobra.Command{
		Use:   "inspect REF",
		Short: "Show an image's disk, and check whether a VM can boot from it",
		Long: `Shows the disk in an image: its format and sizes, the image's digest and layers, and
what prevents a VM from booting from it, with the checks that the node makes when a
VM starts.

The command inspects the image in this node's containerd. If it is not there, the
command fetches it from its registry into a temporary file.

The exit code is 1 if a VM could not boot from the image.`,
		Example: `  nodevirt image inspect example.com/disks/debian:12
  nodevirt image inspect example.com/disks/many:1 --path /disk/b.qcow2
  nodevirt image inspect example.com/disks/debian:12 -o json | jq .virtualSize`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			i.out, i.errOut = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return i.run(cmd.Context(), args[0])
		},
	}
	cmd.Flags().StringVar(&i.path, "path", "", "the disk's `path` in the image, where it holds several")
	cmd.Flags().BoolVar(&i.remote, "remote", false, "look at the registry's image even if the node has one of that name")
	cmd.Flags().BoolVar(&i.insecure, "insecure", false,
		"let the registry speak plain HTTP or have a certificate that is not trusted; needless for loopback")
	cli.ContainerdFlag(cmd, &i.containerd)
	cli.ConfigFlag(cmd, &i.config)
	cli.OutputFlag(cmd, &i.format, "table", "json")
	return cmd
}

// report is the result of an inspection.
type report struct {
	Image        string             `json:"image"`
	Source       string             `json:"source"` // registry or containerd
	Digest       string             `json:"digest"` // of the manifest
	ImageID      string             `json:"imageID"`
	Architecture string             `json:"architecture"`
	Layers       []layer            `json:"layers"`
	Path         string             `json:"path,omitempty"`
	Format       imageunpack.Format `json:"format,omitempty"`
	VirtualSize  int64              `json:"virtualSize,omitempty"` // bytes
	Size         int64              `json:"size,omitempty"`        // bytes of the file
	Problems     []string           `json:"problems"`
}

type layer struct {
	Digest     string `json:"digest"`
	Size       int64  `json:"size"` // bytes, as stored
	Compressed bool   `json:"compressed"`
}

func (i inspect) run(ctx context.Context, ref string) (err error) {
	if i.maxSize, i.snapshotter, err = shimConfig(i.config); err != nil {
		return err
	}
	r, err := i.look(ctx, ref)
	if err != nil {
		return err
	}
	if i.format.String() == "json" {
		err = cli.JSON(i.out, r)
	} else {
		err = r.table(i.out)
	}
	if err == nil && len(r.Problems) > 0 {
		return &cli.ExitError{Code: 1}
	}
	return err
}

// look inspects the image on the node or, if the node does not have it, in its registry.
func (i inspect) look(ctx context.Context, ref string) (report, error) {
	if !i.remote {
		r, err := i.local(ctx, ref)
		if err == nil || ctx.Err() != nil {
			return r, err
		}
		if !isElsewhere(err) {
			return r, err
		}
	}
	return i.fetch(ctx, ref)
}

// findings adds the results of the checks to the report. It returns errors that are not
// the image's fault.
func (r *report) findings(d imageunpack.Disk, err error) error {
	if err != nil {
		if !isProblem(err) {
			return err
		}
		if !errors.Is(err, imageunpack.ErrPlatform) || len(r.Problems) == 0 { // found before
			r.Problems = append(r.Problems, err.Error())
		}
		return nil
	}
	r.Path, r.Format, r.VirtualSize, r.Size = d.Path, d.Format, d.VirtualSize, d.Size
	return nil
}

// checkPlatform returns an error for an image of another platform.
func (r *report) checkPlatform(os, arch string) {
	r.Architecture = arch
	if err := imageunpack.CheckPlatform(os, arch); err != nil {
		r.Problems = append(r.Problems, err.Error())
	}
}

func (r report) table(w io.Writer) error {
	rows := [][]string{
		{"Image:", r.Image}, {"Source:", r.Source}, {"Digest:", r.Digest}, {"Image ID:", r.ImageID},
		{"Architecture:", r.Architecture},
	}
	for n, l := range r.Layers {
		how := "not compressed"
		if l.Compressed {
			how = "compressed"
		}
		rows = append(rows, []string{fmt.Sprintf("Layer %d:", n+1),
			fmt.Sprintf("%s, %s, %s", cli.Bytes(l.Size), how, l.Digest)})
	}
	if r.Path != "" {
		rows = append(rows, []string{"Disk:", r.Path}, []string{"Format:", string(r.Format)},
			[]string{"Virtual size:", cli.Bytes(r.VirtualSize)}, []string{"Size:", cli.Bytes(r.Size)})
	}
	verdict := "yes"
	if len(r.Problems) > 0 {
		verdict = "no"
	}
	rows = append(rows, []string{"Boots a VM:", verdict})
	for _, p := range r.Problems {
		rows = append(rows, []string{"Problem:", strings.ReplaceAll(p, "\n", "; ")})
	}
	return cli.Table(w, rows)
}
