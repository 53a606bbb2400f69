// Package disks implements the command nodevirt disk, which shares disks between nodes.
//
// It owns the commands and the files that transfer credentials. It leaves exports
// and imports to the shim.
package disks

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/share"
)

// defaultSocket is where the shim serves disks.
const defaultSocket = "/run/nodevirt/disks.sock"

// Command returns the command nodevirt disk.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "disk",
		Short: "Share disks between nodes over iSCSI",
		Long: `A VM can use a disk that another node exports. The export, with all that is written to
it, exists until you remove it. A file that only root can read transfers the address
and the password.`,
	}
	cmd.AddCommand(exportCommand(), unexportCommand(), importCommand(), forgetCommand(), lsCommand())
	return cmd
}

func socketFlag(cmd *cobra.Command, socket *string) {
	cmd.Flags().StringVar(socket, "disks-socket", defaultSocket, "the shim's `socket` for disks")
}

func exportCommand() *cobra.Command {
	var socket, endpoint, output string
	var request disk.ExportRequest
	cmd := &cobra.Command{
		Use:   "export IMAGE",
		Short: "Serve a disk of an image to another node",
		Long: `Serves a registry disk over iSCSI, at the address of the shim's config (iscsi.address),
until you remove the export. One node at a time can use it. The image is pulled if it is
not on this node. The address and the password are written to a new file that only root
can read.`,
		Example: `  sudo nodevirt disk export registry.example/data:1 --name data
  sudo nodevirt disk export registry.example/data:1 --name data -o - | ssh root@other nodevirt disk import data --namespace default -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output == "" {
				output = request.Name + ".json"
			}
			write, err := openOutput(cmd.OutOrStdout(), output)
			if err != nil {
				return err
			}
			n, err := cli.Dial(cmd.Context(), endpoint)
			if err != nil {
				return errors.Join(err, write.drop())
			}
			defer n.Close()
			request.Image = args[0]
			conn, err := export(cmd, n, socket, request)
			if err != nil {
				return errors.Join(err, write.drop())
			}
			return write.connection(conn)
		},
	}
	socketFlag(cmd, &socket)
	cli.EndpointFlag(cmd, &endpoint)
	cmd.Flags().StringVar(&request.Name, "name", "", "the export's `name`")
	cmd.Flags().StringVar(&request.Path, "path", "", "the disk's `path` in the image, where it holds several")
	cmd.Flags().BoolVar(&request.Shareable, "shareable", false, "let several VMs use it at the same time, for file systems that are made for that")
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` for what it takes to use the disk (default: NAME.json); - is the standard output")
	_ = cmd.MarkFlagRequired("name") // fails only for a flag that isn't there
	return cmd
}

func export(cmd *cobra.Command, n *cli.Node, socket string, r disk.ExportRequest) (disk.Connection, error) {
	spec := &runtimeapi.ImageSpec{Image: r.Image}
	reply, err := n.Images.ImageStatus(cmd.Context(), &runtimeapi.ImageStatusRequest{Image: spec})
	if err != nil {
		return disk.Connection{}, fmt.Errorf("look for image %s: %w", r.Image, cli.Plain(err))
	}
	id := reply.GetImage().GetId()
	if id == "" {
		done := cli.Spin(cmd.ErrOrStderr(), "pull "+cli.Clean(r.Image))
		pulled, err := n.Images.PullImage(cmd.Context(), &runtimeapi.PullImageRequest{Image: spec})
		done()
		if err != nil {
			return disk.Connection{}, fmt.Errorf("pull image %s: %w", r.Image, cli.Plain(err))
		}
		id = pulled.GetImageRef()
	}
	r.Image = id
	return share.NewClient(socket).Export(cmd.Context(), r)
}

// output is the destination of a connection's credentials.
type output struct {
	w    io.Writer
	file *os.File // nil for the standard output
}

// openOutput creates the file before the export, since an export without its
// credentials is useless.
func openOutput(stdout io.Writer, path string) (output, error) {
	if path == "-" {
		return output{w: stdout}, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return output{}, fmt.Errorf("%s exists already: choose another file with --output, or remove it", path)
	}
	return output{w: f, file: f}, err
}

func (o output) connection(c disk.Connection) error {
	e := json.NewEncoder(o.w)
	e.SetIndent("", "  ")
	err := e.Encode(c) //nolint:gosec // it is what the file is for
	if o.file != nil {
		err = errors.Join(err, o.file.Close())
	}
	if err != nil {
		return fmt.Errorf("write the credentials of export %s: %w; remove it with \"nodevirt disk unexport\"", c.Name, err)
	}
	return nil
}

func (o output) drop() error {
	if o.file == nil {
		return nil
	}
	return errors.Join(o.file.Close(), os.Remove(o.file.Name()))
}

func unexportCommand() *cobra.Command {
	var (
		socket string
		force  bool
	)
	cmd := &cobra.Command{
		Use:     "unexport NAME",
		Short:   "Remove an export, with all that was written to it",
		Example: "  sudo nodevirt disk unexport data",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return share.NewClient(socket).Unexport(cmd.Context(), args[0], force)
		},
	}
	socketFlag(cmd, &socket)
	cmd.Flags().BoolVar(&force, "force", false, "even if it is in use: its user's reads and writes fail from then on")
	return cmd
}

func importCommand() *cobra.Command {
	var socket, namespace string
	cmd := &cobra.Command{
		Use:   "import NAME FILE",
		Short: "Let pods of a namespace use a disk that another node exports",
		Long: `Reads the output of "nodevirt disk export" from a file or, for -, from standard input.
Pods of the namespace use the disk by the annotation nodevirt.io/imported-disks.`,
		Example: "  sudo nodevirt disk import data --namespace default data.json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			i, err := readConnection(cmd.InOrStdin(), args[1])
			if err != nil {
				return err
			}
			i.Name, i.Namespace = args[0], namespace
			return share.NewClient(socket).Import(cmd.Context(), i)
		},
	}
	socketFlag(cmd, &socket)
	cmd.Flags().StringVar(&namespace, "namespace", "", "the Kubernetes `namespace` whose pods may use the disk")
	_ = cmd.MarkFlagRequired("namespace") // fails only for a flag that isn't there
	return cmd
}

// maxConnection bounds what is read of a file.
const maxConnection = 64 << 10

func readConnection(stdin io.Reader, path string) (disk.Import, error) {
	var i disk.Import
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return i, err
		}
		defer f.Close()
		stdin = f
	}
	d := json.NewDecoder(io.LimitReader(stdin, maxConnection))
	d.DisallowUnknownFields()
	if err := d.Decode(&i.Connection); err != nil {
		return i, fmt.Errorf("%s is not the output of \"nodevirt disk export\": %w", path, err)
	}
	return i, nil
}

func forgetCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:     "forget NAME",
		Short:   "Remove an import; VMs that use it keep it",
		Example: "  sudo nodevirt disk forget data",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return share.NewClient(socket).Forget(cmd.Context(), args[0])
		},
	}
	socketFlag(cmd, &socket)
	return cmd
}

func lsCommand() *cobra.Command {
	var (
		socket string
		format cli.Format
	)
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List this node's exports and imports",
		Example: "  sudo nodevirt disk ls",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := share.NewClient(socket).List(cmd.Context())
			if err != nil {
				return err
			}
			if format.String() == "json" {
				return cli.JSON(cmd.OutOrStdout(), l)
			}
			return table(cmd.OutOrStdout(), l)
		},
	}
	socketFlag(cmd, &socket)
	cli.OutputFlag(cmd, &format, "table", "json")
	return cmd
}

func table(w io.Writer, l share.List) error {
	rows := [][]string{{"NAME", "KIND", "NAMESPACE", "PORTAL", "SIZE", "STATE"}}
	for _, e := range l.Exports {
		state := "served"
		switch {
		case !e.Served:
			state = "not served"
		case len(e.Initiators) > 0:
			state = "in use"
		}
		rows = append(rows, []string{e.Name, "export", "-", e.Portal, cli.Bytes(e.Size), state})
	}
	for _, i := range l.Imports {
		rows = append(rows, []string{cli.Clean(i.Name), "import", cli.Clean(i.Namespace), cli.Clean(i.Portal), cli.Bytes(i.Size), "-"})
	}
	return cli.Table(w, rows)
}
