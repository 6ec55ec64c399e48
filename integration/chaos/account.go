package main

// An account is the history of one task, from the journals.
type account struct {
	name      string
	invoked   int64 // when it was being enqueued; 0: never
	answered  int64 // when that was answered; 0: never
	enqueue   phase // invoke if there was no answer
	cancel    phase // "" if it was not canceled
	canceled  int64 // when the cancel was answered
	runs      []*run
	waits     []event // of who waited for its end
	forgotten bool    // lost with what Redis does not keep
}

// A run is one call of a handler.
type run struct {
	process, peer, worker string
	token                 int64
	began                 int64
	told                  int64  // when its context ended, if it did
	cause                 string // why
	finishing             int64  // when it finished its task itself, if it did
	finish                phase  // what came of that
	over                  int64  // when it returned
	note                  string // what it returned
	other                 string // the part of its input that another task should have got
}

// accounts sorts the events by task.
func accounts(events []event) map[string]*account {
	all := map[string]*account{}
	of := func(task string) *account {
		if all[task] == nil {
			all[task] = &account{name: task}
		}
		return all[task]
	}
	for _, e := range events {
		for _, task := range e.Tasks {
			t := of(task)
			switch e.Op {
			case opEnqueue:
				t.enqueue = e.Phase
				if e.Phase == invoke {
					t.invoked = e.Mono
				} else if e.Phase == okay {
					t.answered = e.Mono
				}
			case opCancel:
				t.cancel = e.Phase
				if e.Phase == okay {
					t.canceled = e.Mono
				}
			case opWait:
				t.waits = append(t.waits, e)
			case opRun, opEnded, opFinish:
				t.take(&e)
			}
		}
	}
	return all
}

// take takes in an event of a handler.
func (t *account) take(e *event) {
	if e.Op == opRun && e.Phase == invoke {
		t.runs = append(t.runs, &run{process: e.Process, peer: e.Peer, worker: e.Worker, token: e.Token, began: e.Mono, other: e.Note})
		return
	}
	for _, r := range t.runs {
		if r.process != e.Process || r.peer != e.Peer {
			continue
		}
		switch {
		case e.Op == opRun:
			r.over, r.note = e.Mono, e.Note
		case e.Op == opEnded:
			r.told, r.cause = e.Mono, e.Note
		case e.Phase == invoke:
			r.finishing = e.Mono
		default:
			r.finish = e.Phase
		}
	}
}
