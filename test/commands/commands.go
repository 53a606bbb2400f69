// Package commands is the main function of a program whose first argument names what to do.
package commands

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Command does what its name says, with the arguments behind that. The context ends with the first
// SIGINT or SIGTERM.
type Command func(ctx context.Context, args []string) error

// Main runs the command that the program's first argument names and returns the exit code: 2 with the
// usage on standard error if there is no such command, and 1 with its error there if it failed.
func Main(program, usage string, commands map[string]Command) int {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	return Interruptible(program, func(ctx context.Context) error {
		return commands[os.Args[1]](ctx, os.Args[2:])
	})
}

// Interruptible is Main for a program that does one thing.
func Interruptible(program string, run func(ctx context.Context) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program, err)
		return 1
	}
	return 0
}
