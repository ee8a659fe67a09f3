"""The formats of the queue's API: headers, filters, signatures, callbacks and JSON records."""
