// Package image implements the commands on registry disks: nodevirt image build and
// nodevirt image inspect.
//
// It owns the sources and destinations of images: the node's containerd, a
// registry, a file. It leaves the format of registry disks to package registrydisk,
// and whether a VM can boot from one to package imageunpack.
package image

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"

	"github.com/nodevirt/nodevirt/shim/config"
)

// Command returns the command nodevirt image.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Build and inspect registry disks",
		Long: "A registry disk is a container image with a disk in its folder /disk, which a VM boots from.\n" +
			"KubeVirt calls it a containerDisk.",
	}
	cmd.AddCommand(buildCommand(), inspectCommand())
	return cmd
}

// shimConfig returns what the shim's config says of images: the largest disk in bytes, and the
// snapshotter that has them.
func shimConfig(file string) (maxDisk int64, snapshotter string, err error) {
	c, err := config.Load(file, func(*config.Config) error { return nil })
	return int64(c.VM.MaxDiskSize), c.Containerd.Snapshotter, err
}

// parse parses a reference as docker does: "debian" is docker.io/library/debian:latest.
// The returned text is what containerd calls the image.
func parse(ref string, insecure bool) (name.Reference, string, error) {
	full, err := reference.ParseDockerRef(ref)
	if err != nil {
		return nil, "", fmt.Errorf("image reference %q: %w: want [REGISTRY/]NAME[:TAG]", ref, err)
	}
	// go-containerregistry calls Docker Hub index.docker.io, and maps this name to it.
	var options []name.Option
	if insecure {
		options = append(options, name.Insecure)
	}
	remote, err := name.ParseReference(full.String(), options...)
	if err != nil {
		return nil, "", fmt.Errorf("image reference %q: %s", ref, strings.TrimSpace(err.Error()))
	}
	return remote, full.String(), nil
}
