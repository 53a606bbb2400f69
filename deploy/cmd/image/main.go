// Command image makes the container image of the controller or, with -programs, of the installer, of
// their programs, without docker; with -arm64, an index of the controller's images for two
// architectures. It pushes the image to a registry, or writes it to a file that "ctr image import" and
// "docker load" read: an index as an OCI layout. To push it uses the credentials of docker and podman.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/nodevirt/nodevirt/deploy/image"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	var (
		program  = flags.String("program", "bin/nodevirt-controller", "the image's program, linked statically: `file`")
		arm64    = flags.String("arm64", "", "make an index, with the controller's program for arm64: `file`")
		programs = flags.String("programs", "", "make the installer's image, with the programs of a node in this `folder`")
		version  = flags.String("version", "unknown", "`text` of the image's label")
		ref      = flags.String("name", "registry.example.com/nodevirt/nodevirt-controller:latest", "the image's `name`")
		out      = flags.String("o", "", "write the image to a `file`")
		push     = flags.Bool("push", false, "push the image to its registry")
	)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case *out == "" && !*push:
		return errors.New("say what to do with the image: -push, or -o FILE")
	}
	to, err := name.ParseReference(*ref)
	if err != nil {
		return fmt.Errorf("-name: %w", err)
	}
	made, err := build(*program, *arm64, *programs, *version)
	if err != nil {
		return err
	}
	if *out != "" {
		if err := made.write(*out, to); err != nil {
			return fmt.Errorf("write %s: %w", *out, err)
		}
	}
	if *push {
		if err := made.push(to, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("push %s: %w", to, err)
		}
	}
	return printNames(to, made)
}

// product is an image, or an index of images.
type product interface {
	Digest() (v1.Hash, error)
	// write writes it to a file.
	write(file string, as name.Reference) error
	push(to name.Reference, o ...remote.Option) error
}

func build(program, arm64, programs, version string) (product, error) {
	switch {
	case programs != "" && arm64 != "":
		return nil, errors.New("-arm64 is for the controller's image alone")
	case programs != "":
		img, err := image.Installer(program, programs, version)
		return single{img}, err
	case arm64 != "":
		made, err := image.Controllers(map[string]string{"amd64": program, "arm64": arm64}, version)
		return index{made}, err
	}
	img, err := image.Controller(program, version)
	return single{img}, err
}

type single struct{ v1.Image }

func (s single) write(file string, as name.Reference) error {
	return tarball.WriteToFile(file, as, s.Image)
}

func (s single) push(to name.Reference, o ...remote.Option) error {
	return remote.Write(to, s.Image, o...)
}

type index struct{ v1.ImageIndex }

func (i index) write(file string, as name.Reference) error {
	return image.WriteArchive(file, as, i.ImageIndex)
}

func (i index) push(to name.Reference, o ...remote.Option) error {
	return remote.WriteIndex(to, i.ImageIndex, o...)
}

// printNames prints the names by which a manifest can refer to the image.
func printNames(ref name.Reference, made product) error {
	digest, err := made.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", ref.Context(), digest)
	return nil
}
