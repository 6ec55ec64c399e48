package load

// An Account is the history of one task, or of several with one payload, as peers report it.
type Account struct {
	Name     string
	Key      string // shared with other tasks
	Invoked  int64  // when it was last enqueued; 0: never
	Answered int64  // when an enqueue was accepted; 0: never
	Enqueue  Phase  // Invoke if there was no reply
	Tried    int    // how many enqueues were tried
	Okay     int    // how many were accepted
	Refused  int    // how many were refused
	Cancel   Phase  // "" if it was not canceled, or not removed
	Canceled int64  // when the cancel was answered
	Gone     int64  // when no copy was running anymore
	Stopped  bool   // no copy was waiting: it may have stopped one, or come too late
	Runs     []*Run
	Waits    []Event // calls of Wait for it
}

// A Run is one call of a handler.
type Run struct {
	Process, Peer string
	Token         int64
	Began         int64
	Told          int64  // when its context ended, if it did
	Cause         string // why
	Finishing     int64  // when it called Finish itself, if it did
	Finish        Phase  // the result of that call
	Over          int64  // when it returned
	Note          string // what it returned
	Other         string // input that another task should have got
}

// Accounts are the accounts of tasks, by name.
type Accounts map[string]*Account

// Of returns the account of a task.
func (all Accounts) Of(task string) *Account {
	if all[task] == nil {
		all[task] = &Account{Name: task}
	}
	return all[task]
}

// Take records an event.
func (all Accounts) Take(e *Event) {
	for _, task := range e.Tasks {
		t := all.Of(task)
		switch e.Op {
		case OpEnqueue:
			t.enqueue(e)
		case OpCancel:
			t.Cancel = e.Phase
			if e.Phase == Okay {
				t.Canceled = e.Mono
			}
		case OpGone:
			if e.Note == NoteKept {
				t.Cancel = ""
			} else {
				t.Gone, t.Stopped = e.Mono, e.Note == NoteStopped
			}
		case OpWait:
			t.Waits = append(t.Waits, *e)
		case OpRun, OpEnded, OpFinish:
			t.run(e)
		}
	}
}

func (t *Account) enqueue(e *Event) {
	t.Enqueue = e.Phase
	switch e.Phase {
	case Invoke:
		t.Invoked, t.Key = e.Mono, e.Key
		t.Tried++
	case Okay:
		t.Answered = e.Mono
		t.Okay++
	case Refused:
		t.Refused++
	}
}

// run records an event of a handler.
func (t *Account) run(e *Event) {
	if e.Op == OpRun && e.Phase == Invoke {
		r := &Run{Process: e.Process, Peer: e.Peer, Token: e.Token, Began: e.Mono, Other: e.Note}
		t.Runs = append(t.Runs, r)
		return
	}
	for _, r := range t.Runs {
		if r.Process != e.Process || r.Peer != e.Peer {
			continue
		}
		switch {
		case e.Op == OpRun:
			r.Over, r.Note = e.Mono, e.Note
		case e.Op == OpEnded:
			r.Told, r.Cause = e.Mono, e.Note
		case e.Phase == Invoke:
			r.Finishing = e.Mono
		default:
			r.Finish = e.Phase
		}
	}
}
