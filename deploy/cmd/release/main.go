// Command release prints the notes of a release, or the bill of materials of its programs.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/nodevirt/nodevirt/deploy/release"
)

const usage = `usage: release notes CHANGELOG VERSION
       release sbom VERSION SECONDS PROGRAM...

SECONDS is the time of the release, since 1970`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "notes":
		changelog, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		notes, err := release.Notes(string(changelog), args[2])
		if err != nil {
			return err
		}
		_, err = fmt.Print(notes)
		return err
	case len(args) > 3 && args[0] == "sbom":
		seconds, err := strconv.ParseInt(args[2], 10, 64)
		if err != nil {
			return fmt.Errorf("time of the release: %w", err)
		}
		return release.SBOM(os.Stdout, args[1], time.Unix(seconds, 0), args[3:])
	}
	return errors.New(usage)
}
