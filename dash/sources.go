package dash

import (
	"cmp"
	"context"
	"sync"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// A section is what one of worqr.Options.Sources reports.
type section struct {
	Title string
	Rows  []inspect.Row
	Err   string // why there are no rows
}

func sections(ctx context.Context, p *worqr.Peer) []section {
	sources := p.Sources()
	all := make([]section, len(sources))
	var asked sync.WaitGroup
	for i, s := range sources {
		asked.Go(func() {
			report, err := s.Report(ctx)
			all[i] = section{Title: cmp.Or(s.Title, s.Name), Rows: report.Rows}
			if err != nil {
				all[i].Err = printable(err.Error())
			}
		})
	}
	asked.Wait()
	return all
}
