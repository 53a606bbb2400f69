package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// OutputFlag adds -o with the formats that a command has; the first is the default.
func OutputFlag(cmd *cobra.Command, format *Format, formats ...string) {
	*format = Format{value: formats[0], known: formats}
	cmd.Flags().VarP(format, "output", "o", "output `format`: "+strings.Join(formats, " or "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// Format is an output format, one of a fixed list.
type Format struct {
	value string
	known []string
}

func (f *Format) String() string { return f.value }

// Type implements pflag.Value.
func (f *Format) Type() string { return "format" }

// Set implements pflag.Value.
func (f *Format) Set(v string) error {
	if !slices.Contains(f.known, v) {
		return fmt.Errorf("want %s", strings.Join(f.known, " or "))
	}
	f.value = v
	return nil
}

// JSON writes v, indented.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Table writes rows in columns that fit their widest cell.
func Table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, c := range row {
			if cells[i] = Clean(c); c == "" {
				cells[i] = "-" // an empty cell at a line's end would end the column
			}
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// Clean makes untrusted text safe for a line on a terminal: it replaces control
// characters, which could move the cursor or change colours, by question marks.
func Clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
