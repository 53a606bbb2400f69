package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// head is a section's first line. A median comes before its quartiles.
var head = []string{"", "baseline", "measured", "result", "goal", ""}

// Table writes the report for people, in at most a hundred columns.
func (r Report) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nMedians, with their quartiles in brackets. A difference is the median of the rounds' differences.\n", r.Machine)
	for _, s := range r.Sections {
		s.table(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s Section) table(b *strings.Builder) {
	widths := make([]int, len(head))
	widen(widths, head)
	for _, row := range s.Rows {
		widen(widths, row.cells())
	}
	fmt.Fprintf(b, "\n%s\n%s", s.Title, line(widths, head))
	for _, row := range s.Rows {
		b.WriteString(line(widths, row.cells()))
	}
	for _, note := range s.Notes {
		fmt.Fprintf(b, "  %s\n", note)
	}
}

// cells are the row's columns, as head names them.
func (r Row) cells() []string {
	cells := []string{"  " + r.Name, r.spread(r.Baseline), r.spread(r.Measured), "", "", ""}
	if r.Kind != Value {
		cells[3] = r.amount(r.Result())
	}
	if r.Kind == More && r.Result() >= 0 {
		cells[3] = "+" + cells[3]
	}
	if all := r.rounds(); r.Kind == Turns && len(all.Samples) > 1 {
		cells[3] += fmt.Sprintf(" (%.2f–%.2f)", all.Quantile(0.25), all.Quantile(0.75))
	}
	if r.Goal != 0 {
		goal := r.amount(r.Goal)
		if !r.factor() {
			goal = fmt.Sprintf("%g %s", r.Goal, r.Unit)
		}
		limit := "≤ "
		if r.AtLeast {
			limit = "≥ "
		}
		cells[4], cells[5] = limit+strings.Replace(goal, "0 ×", " ×", 1), "met"
		if !r.Met() {
			cells[5] = "MISSED"
		}
	}
	return cells
}

// spread is a median, with the quartiles where there are more samples than one. Of turns the
// result has them.
func (r Row) spread(s Series) string {
	switch {
	case len(s.Samples) == 0:
		return ""
	case len(s.Samples) == 1, r.Kind == Turns:
		return number(s.Median()) + " " + r.Unit
	default:
		return fmt.Sprintf("%s %s (%s–%s)", number(s.Median()), r.Unit,
			number(s.Quantile(0.25)), number(s.Quantile(0.75)))
	}
}

func widen(widths []int, cells []string) {
	for i, c := range cells {
		widths[i] = max(widths[i], utf8.RuneCountInString(c))
	}
}

func line(widths []int, cells []string) string {
	var b strings.Builder
	for i, c := range cells {
		b.WriteString(c + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}
