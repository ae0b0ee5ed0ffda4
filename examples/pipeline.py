"""The regressor in a scikit-learn pipeline, its settings chosen by cross-validation."""

from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer

from srgp import Exact, SparseGPRegressor

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

pipeline = make_pipeline(PowerTransformer(), SparseGPRegressor(learner=Exact(iterations=20)))
settings = {"sparsegpregressor__n_inducing": [10, 30], "sparsegpregressor__kernel": ["se"]}
search = GridSearchCV(pipeline, settings, cv=3).fit(X_train, y_train)

mean, deviation = search.predict(X_test), search.best_estimator_.predict(X_test, return_std=True)[1]
inside = (abs(y_test - mean) < 1.96 * deviation).mean()
print(f"best settings {search.best_params_}")
print(f"R² {search.score(X_test, y_test):.2f}, 95 % intervals cover {100 * inside:.0f} %")
