package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/imageunpack/registrydisk"
)

// build is the command nodevirt image build.
type build struct {
	tag, file, containerd, arch, config string

	push, insecure, lazy bool

	out, errOut io.Writer
}

func buildCommand() *cobra.Command {
	var b build
	cmd := &cobra.Command{
		Use:   "build DISK -t REF",
		Short: "Wrap a qcow2 or raw disk as a registry disk",
		Long: `Wraps a qcow2 or raw disk as an image that a VM boots from. The disk is checked
first, as the node checks it when a VM starts.

The image goes to this node's containerd, so that a pod can use it at once; with
--push to its registry; with -o into a file, an OCI archive that "ctr images
import", skopeo and docker read. docker is not required; credentials come from its
config file and credential helpers.

The image contains the disk as /disk/disk.qcow2 or /disk/disk.img, in one layer that
is not compressed: to make the disk smaller, use qemu-img convert -c. Equal disks
result in equal digests.

With --lazy the layer is eStargz: nodes with the stargz snapshotter fetch from the
registry what the guest reads, and boot it before the rest is there. Other nodes pull
it as any image. The layer is compressed, so that the disk should not be.`,
		Example: `  # into this node's containerd
  nodevirt image build debian-12.qcow2 -t example.com/disks/debian:12

  # to a registry
  nodevirt image build debian-12.qcow2 -t example.com/disks/debian:12 --push

  # into a file
  nodevirt image build debian-12.qcow2 -t example.com/disks/debian:12 -o debian.tar`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b.out, b.errOut = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return b.run(cmd.Context(), args[0])
		},
	}
	cmd.Flags().StringVarP(&b.tag, "tag", "t", "", "the image's `reference`, such as example.com/disks/debian:12 (required)")
	_ = cmd.MarkFlagRequired("tag")
	cmd.Flags().BoolVar(&b.push, "push", false, "push the image to its registry")
	cmd.Flags().StringVarP(&b.file, "output", "o", "", "write the image into an OCI archive `file`")
	cmd.MarkFlagsMutuallyExclusive("push", "output")
	cmd.Flags().BoolVar(&b.lazy, "lazy", false, "write a layer that nodes can fetch while the guest runs")
	cmd.Flags().BoolVar(&b.insecure, "insecure", false,
		"let the registry speak plain HTTP or have a certificate that is not trusted; needless for loopback")
	cmd.Flags().StringVar(&b.arch, "arch", runtime.GOARCH, "the guest's `architecture`")
	cli.ContainerdFlag(cmd, &b.containerd)
	cli.ConfigFlag(cmd, &b.config)
	return cmd
}

func (b build) run(ctx context.Context, path string) error {
	_, full, err := parse(b.tag, b.insecure)
	if err != nil {
		return err
	}
	maxSize, _, err := shimConfig(b.config)
	if err != nil {
		return err
	}
	disk, err := registrydisk.Check(path, maxSize)
	if err != nil {
		return err
	}
	b.hint(disk)
	to, err := b.destination(ctx, full)
	if err != nil {
		return err
	}
	defer to.close()
	bar := cli.NewBar(b.errOut, disk.Size, "checksum")
	img, err := disk.Image(ctx, registrydisk.Options{Architecture: b.arch, Progress: bar, Lazy: b.lazy})
	bar.Done()
	if err != nil {
		return err
	}
	digest, wire, err := measure(img)
	if err != nil {
		return fmt.Errorf("image %s: %w", full, err)
	}
	bar = cli.NewBar(b.errOut, wire, to.doing())
	err = to.write(ctx, target{name: full, img: img}, bar)
	bar.Done()
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "%s\n%s\n", full, digest)
	fmt.Fprintf(b.errOut, "%s: %s disk of %s, %s on the wire, %s\n",
		full, disk.Format, cli.Bytes(disk.VirtualSize), cli.Bytes(wire), to.done())
	return nil
}

// measure returns an image's digest, and the size of its layers in bytes.
func measure(img v1.Image) (digest v1.Hash, size int64, err error) {
	m, err := img.Manifest()
	if err != nil {
		return digest, 0, err
	}
	for _, l := range m.Layers {
		size += l.Size
	}
	digest, err = img.Digest()
	return digest, size, err
}

// hint returns advice for a disk that is mostly holes: in a layer that is not
// compressed they are zeros.
func (b build) hint(d registrydisk.Disk) {
	const worthSaying = 256 << 20
	if !b.lazy && d.Size > 4*d.Allocated && d.Size-d.Allocated > worthSaying {
		fmt.Fprintf(b.errOut, "hint: %s has %s, of which %s are data; the image carries all of it. Smaller: "+
			"qemu-img convert -O qcow2 %s disk.qcow2\n", d.Path, cli.Bytes(d.Size), cli.Bytes(d.Allocated), d.Path)
	}
}

// target is an image and its full name.
type target struct {
	name string
	img  v1.Image
}

// destination is where an image is written to.
type destination interface {
	// write stores an image and reports the bytes written to bar.
	write(ctx context.Context, t target, bar *cli.Bar) error
	// doing and done describe the destination during the work and after it.
	doing() string
	done() string
	// close releases the destination.
	close()
}

func (b build) destination(ctx context.Context, full string) (destination, error) {
	switch {
	case b.push:
		return newRegistry(full, b.insecure)
	case b.file != "":
		return archive{path: b.file}, nil
	}
	c, err := cli.DialContainerd(ctx, b.containerd)
	if err != nil {
		return nil, errors.Join(err, errors.New("name a destination: -o FILE writes the image into a file, --push sends it to its registry"))
	}
	return &store{client: c, address: b.containerd}, nil
}
