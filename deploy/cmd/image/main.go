// Command image makes the container image of the controller or, with -programs, of the installer, of
// their programs, without docker. It pushes the image to a registry, or writes it to a file that "ctr
// image import" and "docker load" read. To push it uses the credentials of docker and podman.
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
	img, err := build(*program, *programs, *version)
	if err != nil {
		return err
	}
	if *out != "" {
		if err := tarball.WriteToFile(*out, to, img); err != nil {
			return fmt.Errorf("write %s: %w", *out, err)
		}
	}
	if *push {
		if err := remote.Write(to, img, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("push %s: %w", to, err)
		}
	}
	return printNames(to, img)
}

func build(program, programs, version string) (v1.Image, error) {
	if programs != "" {
		return image.Installer(program, programs, version)
	}
	return image.Controller(program, version)
}

// printNames prints the names by which a manifest can refer to the image.
func printNames(ref name.Reference, img v1.Image) error {
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", ref.Context(), digest)
	return nil
}
