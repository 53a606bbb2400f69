package migration

import "slices"

// oldest returns the ended migrations beyond those that remain.
func oldest(all []migration) []*migration {
	var ended []*migration
	for i := range all {
		if m := &all[i]; m.IsFinal() && m.DeletionTimestamp == nil {
			ended = append(ended, m)
		}
	}
	slices.SortFunc(ended, func(a, b *migration) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return ended[:max(len(ended)-kept, 0)]
}
