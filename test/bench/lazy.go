package bench

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/imageunpack/registrydisk"
	"github.com/nodevirt/nodevirt/test/bench/report"
)

// lazyGoal is how many times as long as on a node that has the image a guest may take to its first
// answer.
const lazyGoal = 1.3

// lazy measures the time from a lazy image in the registry to its guest's first answer, on a node that
// has nothing of it, against the next VM of it.
func (r *rig) lazy(ctx context.Context) (s report.Section, err error) {
	s.Title = fmt.Sprintf("A lazy image of %d MiB, from the registry to the guest's first answer", coldSize>>20)
	s.Notes = []string{"The baseline: the next VM of the image. The node fetches the rest of it in the background."}
	cold, warm, pull := report.Series{Of: "lazy"}, report.Series{Of: "warm"}, report.Series{Of: "pull"}
	for round := range 3 {
		name := fmt.Sprintf("lazy-%d", round)
		ref, err := r.pushLazy(ctx, name)
		if err != nil {
			return s, err
		}
		first, err := r.phasesFrom(ctx, ref, name)
		if err != nil {
			return s, err
		}
		next, err := r.phasesFrom(ctx, ref, name+"-next")
		if err != nil {
			return s, err
		}
		cold.Add(sum(first))
		warm.Add(sum(next))
		pull.Add(first[0])
	}
	whole := value("to the first answer", cold)
	whole.Kind, whole.Baseline, whole.Goal = report.Ratio, warm, lazyGoal
	s.Rows = []report.Row{whole, value("of it the pull", pull)}
	return s, nil
}

// pushLazy makes a lazy image that the node has never seen.
func (r *rig) pushLazy(ctx context.Context, name string) (ref string, err error) {
	path, err := r.largeGuest(ctx, coldSize)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	disk, err := registrydisk.Check(path, 1<<40)
	if err != nil {
		return "", err
	}
	img, err := disk.Image(ctx, registrydisk.Options{Architecture: "amd64", Lazy: true})
	if err != nil {
		return "", err
	}
	return r.Push(ctx, name+":1", img)
}

func sum(all []float64) (total float64) {
	for _, x := range all {
		total += x
	}
	return total
}
