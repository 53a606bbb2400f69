// Package convert rewrites manifests of KubeVirt's first API, in which a disk names
// its own source, in the present form. It owns the old form alone: the API server
// checks the result.
package convert

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

// maxManifest bounds the bytes of a file.
const maxManifest = 16 << 20

// Command is nodevirt convert.
func Command() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "convert -f FILE",
		Short: "Rewrite manifests of KubeVirt's first API in the present form",
		Long: `Prints the manifests of a file, and rewrites those of KubeVirt's first API, whose disks
have a type, a source and a target: RegistryDisk:v1alpha, ContainerRegistryDisk:v1alpha,
ContainerDisk:v1alpha and PersistentVolumeClaim. Other documents stay as they are.

Reports on standard error what the present form does not have, and what you must add.
Changes nothing in the cluster.`,
		Example: `  nodevirt convert -f old.yaml >new.yaml
  nodevirt convert -f - <old.yaml | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := read(cmd.InOrStdin(), file)
			if err != nil {
				return fmt.Errorf("read the manifests: %w", err)
			}
			converted, notes, err := Manifests(text)
			for _, n := range notes {
				fmt.Fprintln(cmd.ErrOrStderr(), n)
			}
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(converted)
			return err
		},
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "the manifests' `file`; - is standard input")
	_ = cmd.MarkFlagRequired("filename")
	return cmd
}

func read(in io.Reader, file string) ([]byte, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err == nil && len(text) > maxManifest {
		err = errors.New("more than 16 MiB: divide the file")
	}
	return text, err
}
