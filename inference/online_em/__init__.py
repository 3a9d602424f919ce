"""Online variational EM: topics and responses learned from minibatches, whatever the number of documents."""
